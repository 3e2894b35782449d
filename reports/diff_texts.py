"""A diff in words: headings, notes, and the answers of one example side by side with the words that differ."""

from collections.abc import Iterator
from dataclasses import dataclass

from evalflows.reports.change_queries import Change
from evalflows.reports.diff import ExperimentsDiff
from evalflows.reports.example_changes import ChangeList, ExampleChange
from evalflows.reports.item_lines import plain_text, value_text
from evalflows.reports.word_diff import WordDiff, with_context, word_diff
from evalflows.specs.metric_names import MEASURES

HEADINGS: dict[Change, str] = {
    "regressed": "regressed",
    "improved": "improved",
    "flipped": "flipped under the same version",
    "changed": "other labels",
    "missing": "missing on a side",
    "same": "the same",
    "not_applicable": "not applicable",
}

NO_ANSWER = "(no answer)"

MOST_SHOWN = 600
"""Characters of an answer that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersApart:
    """The answers of both sides, each in parts: what both have, and what only it has."""

    baseline: WordDiff
    candidate: WordDiff


def answers_apart(change: ExampleChange, most: int = MOST_SHOWN) -> AnswersApart:
    """Return both answers with the words that differ, around which at most `most` characters of each are kept."""
    if change.outputs is None or change.baseline_outputs is None:
        sides = (change.baseline_outputs, change.outputs)
        baseline, candidate = (NO_ANSWER if side is None else plain_text(side) for side in sides)
        return AnswersApart(
            baseline=_clipped([("same", baseline)], most), candidate=_clipped([("same", candidate)], most)
        )
    parts = with_context(word_diff(plain_text(change.baseline_outputs), plain_text(change.outputs)))
    return AnswersApart(
        baseline=_clipped([part for part in parts if part[0] != "added"], most),
        candidate=_clipped([part for part in parts if part[0] != "removed"], most),
    )


def _clipped(parts: WordDiff, most: int) -> WordDiff:
    out: WordDiff = []
    for kind, text in parts:
        if len(text) > most:
            return [*out, (kind, text[:most]), ("same", " …")]
        out.append((kind, text))
        most -= len(text)
    return out


def heading(diff: ExperimentsDiff, changes: ChangeList) -> str:
    """Return what the examples of a list have in common, and how many there are."""
    baseline = diff.names[diff.baseline.experiment_id]
    shown = f"{len(changes.examples)} of " if 0 < len(changes.examples) < changes.count else ""
    return (
        f"{HEADINGS[changes.change]}: {diff.names[changes.candidate_experiment_id]} against {baseline}, "
        f"{shown}{changes.count} example{'s' * (changes.count != 1)}"
    )


def no_examples(diff: ExperimentsDiff) -> str:
    """Return why no example is listed."""
    is_compared = any(count.metric not in MEASURES for count in diff.counts)
    return "no example changed" if is_compared else "no example is listed: no metric of an evaluator is shared"


def values_text(change: ExampleChange) -> str:
    """Return a metric's values on both sides: `contains: was 1, now 0`."""
    was = change.baseline_label or value_text(change.baseline_value, change.baseline_missing, change.metric)
    now = change.label or value_text(change.value, change.missing, change.metric)
    return f"{change.metric}: was {was}, now {now}"


def remarks(change: ExampleChange) -> Iterator[tuple[str, str]]:
    """Yield what the evaluator said of both answers, and the errors; once if it is the same."""
    for name in ("comment", "error"):
        text, baseline = getattr(change, name), getattr(change, f"baseline_{name}")
        if baseline and baseline != text:
            yield f"baseline's {name}", baseline
        if text:
            yield name, text


def notes_of(diff: ExperimentsDiff) -> list[str]:
    """Return which examples are compared, and what else differs, one sentence each."""
    out = []
    names = {one.experiment_id: diff.names[one.experiment_id] for one in diff.candidates}
    if diff.where is not None:
        counts = ", ".join(f"{n} in {names[owner]}" for owner, n in diff.n_compared.items())
        total = counts if len({*diff.n_compared.values()}) > 1 else str(next(iter(diff.n_compared.values())))
        out.append(f"only the examples where {diff.where} are compared: {total}")
    by_text: dict[str, list[str]] = {}
    for note in diff.notes:
        by_text.setdefault(note.text, []).append(names[note.candidate_experiment_id])
    several = len(names) > 1
    out += [f"{', '.join(owners)}: {text}" if several else text for text, owners in by_text.items()]
    return out
