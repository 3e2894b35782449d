"""The document that `evalflows diff --format json` prints."""

from dataclasses import asdict

from evalflows.reports.diff import ExperimentsDiff
from evalflows.reports.document import Document, metric_document, plain
from evalflows.reports.example_changes import ChangeList, ExampleChange
from evalflows.store.records import from_json

_JSON = ("inputs", "reference_outputs", "outputs", "baseline_outputs")


def diff_document(diff: ExperimentsDiff) -> Document:
    """Return a diff as one object, with null for what is missing."""
    targets = {one.experiment_id: one.target for one in (diff.baseline, *diff.candidates)}
    content: Document = {
        "baseline": asdict(diff.baseline),
        "candidates": [asdict(one) for one in diff.candidates],
        "where": diff.where,
        "n_compared": diff.n_compared,
        "metrics": [metric_document(result, targets) for result in diff.results if result.has_rows],
        "notes": [asdict(note) for note in diff.notes],
        "changes": [asdict(count) for count in diff.counts],
        "examples": [_list(one) for one in diff.lists],
        "sentences": diff.sentences,
    }
    return plain(content)  # type: ignore[no-any-return]


def _list(changes: ChangeList) -> Document:
    fields = ("candidate_experiment_id", "change", "count")
    return {**{name: getattr(changes, name) for name in fields}, "examples": [example(one) for one in changes.examples]}


def example(change: ExampleChange) -> Document:
    """Return a change with its texts as the values that they are."""
    return {**asdict(change), **{name: from_json(getattr(change, name)) for name in _JSON}}
