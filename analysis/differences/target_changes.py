"""Whether the target of one experiment is that of another, and what changed in its code."""

import json
from collections.abc import Mapping

from evalflows.store.records import ExperimentRow, Json

UNKNOWN_UNLESS_SAID = "http"
"""The kind of target whose application only says itself which version it is."""


def is_same_target(candidate: ExperimentRow, baseline: ExperimentRow) -> bool | None:
    """Return whether two experiments had the same target, as far as can be seen; None if that cannot be told."""
    if candidate.target_version != baseline.target_version:
        return False
    if candidate.application_version != baseline.application_version:
        return False
    return None if candidate.target_kind == UNKNOWN_UNLESS_SAID and candidate.application_version is None else True


def changed_parts(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """Return the names of the parts of code that differ, by name; `new` and `old` are hashes by part.

    Empty if no part has the same name: then it is other code, not changed code.
    """
    if not new.keys() & old.keys():
        return []
    return sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))


def parts_in(code: Json | None) -> dict[str, str]:
    """Return the parts of a target's code as stored; empty if there is none."""
    return dict(json.loads(code)) if code else {}
