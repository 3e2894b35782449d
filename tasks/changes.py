"""What changed between the spec of a run and that of the work it continues."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from evalflows.analysis.comparability import changed_parts, parts_in
from evalflows.specs.code_versions import listed
from evalflows.store.described import DescribedEvaluator, from_described


def changes_in_words(before: Any, row: Any, columns: Iterable[str]) -> Iterator[str]:
    """Yield in words how a resumed experiment or comparison differs in some columns from its first start."""
    for name in columns:
        old, new = getattr(before, name), getattr(row, name)
        if old == new or (name == "evaluators" and _without_live_references(old) == _without_live_references(new)):
            continue
        if name == "application_version" and new is None:  # each answer says it, if at all
            continue
        if name == "target_version":
            parts = changed_parts(parts_in(row.target_code), parts_in(before.target_code))
            yield f"the target has changed since: {listed(parts) if parts else 'its settings'}"
        elif name == "evaluators":  # name only those that differ
            parts = changed_parts(_code(new), _code(old))
            old, new = (", ".join(sorted(_labels(a) - _labels(b))) or "fewer" for a, b in ((old, new), (new, old)))
            yield f"then with evaluators {old}, now with {new}" + (f" ({listed(parts)} changed)" if parts else "")
        else:
            yield f"then with {name} {old}, now with {new}"


def _without_live_references(evaluators: str) -> list[DescribedEvaluator]:
    """Return the evaluators of a row without references to live functions.

    These differ between processes, though the versions are the same.
    """
    return [
        replace(evaluator, use=None) if (evaluator.use or "").startswith("live:") else evaluator
        for evaluator in from_described(evaluators)
    ]


def _labels(evaluators: str) -> set[str]:
    """Return name, version and sample of each evaluator of a row."""
    return {
        f"{evaluator.name}@{evaluator.version}" + (f" of {evaluator.sample}" if evaluator.sample is not None else "")
        for evaluator in from_described(evaluators)
    }


def _code(evaluators: str) -> dict[str, str]:
    """Return a hash of each part of the user's code in the evaluators of a row."""
    return {name: digest for evaluator in from_described(evaluators) for name, digest in (evaluator.code or {}).items()}
