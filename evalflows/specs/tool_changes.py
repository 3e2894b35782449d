"""What a program may change of an experiment that it runs through the tools: what it tries, and nothing that judges it.

Rules, looks, datasets, splits, evaluators, prices, addresses, keys, code and files are a person's to change.
"""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from evalflows.specs.errors import InputError, short
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.target import OF_REASONING

OF_TARGETS = frozenset(
    {
        *("version", "model", "system", "user", "messages", "temperature", "max_tokens", "seed", "tools"),
        *("response_schema", "extra", "body", *OF_REASONING),
    }
)
"""Fields of targets: prompts, models and parameters."""

LOWERED = frozenset({"budget_usd", "max_calls"})
"""Fields that may only become smaller."""

ALLOWED = "prompts, models and parameters of targets, dataset.sample, tags, and lower budgets"


def refuse_changes(given: ExperimentSpec, changed: ExperimentSpec) -> None:
    """Raise InputError, with the first field, if a spec differs from the given one in what a person decides."""
    for path, old, new in differences(given.model_dump(mode="json"), changed.model_dump(mode="json")):
        if not _may_change(path, old, new):
            raise InputError(
                f"changes: got {'.'.join(map(str, path))}, wanted only {ALLOWED}: a person decides on everything else"
            )


def _may_change(path: tuple[str | int, ...], old: Any, new: Any) -> bool:
    if path[0] == "targets" and len(path) > 2:
        names_file = path[-1] == "file" or (isinstance(new, dict) and "file" in new)
        if path[2] == "user" and (len(path) > 3 or (isinstance(old, dict) and "kind" in old)):
            return False  # who speaks in a conversation, and what it is told, is no prompt of what is tried
        field = path[3] if path[2] == "target" and len(path) > 3 else path[2]
        return field in OF_TARGETS and not names_file
    if path[0] in LOWERED:
        return new is not None and (old is None or new <= old)
    return path[0] == "tags" or path == ("dataset", "sample")


def difference_lines(old: Any, new: Any) -> list[str]:
    """Return where two documents differ, in lines: the path, the old value and the new one."""
    found = differences(old, new)
    return [f"{'.'.join(map(str, path)) or 'all'}: {short(was)} → {short(now)}" for path, was, now in found]


def differences(
    old: Any, new: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    """Yield where two documents differ, with both values: fields of mappings, and items of lists of mappings."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from differences(old.get(name), new.get(name), (*path, name))
    elif isinstance(old, list) and isinstance(new, list) and any(isinstance(item, dict) for item in (*old, *new)):
        for index, (before, after) in enumerate(zip_longest(old, new)):
            yield from differences(before, after, (*path, index))
    elif old != new:
        yield path, old, new
