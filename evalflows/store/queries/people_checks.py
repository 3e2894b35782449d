"""The newest comparisons of judges with people's labels. It is light: commands that list load it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from evalflows.store.file_states import owner_states
from evalflows.store.packs import packed_owners
from evalflows.store.records import PEOPLE_PREFIX
from evalflows.store.sql import ask
from evalflows.store.store import Store


class PeopleCheck(NamedTuple):
    """A comparison of a judge with people's labels that came to a conclusion."""

    batch_id: str
    judge: str
    passed: bool
    message: str
    rejection: str | None  # why the judge decides nothing


class PeopleAlpha(NamedTuple):
    """Krippendorff's alpha of a judge and people's labels, whether or not it has an interval."""

    alpha: float | None
    n_labelled: int


PeopleChecks = Mapping[tuple[str, str], PeopleCheck]
PeopleAlphas = Mapping[tuple[str, str], PeopleAlpha]
"""By the judge's version and metric."""


def people_checks(store: Store) -> dict[tuple[str, str], PeopleCheck]:
    """Return the newest comparison of each judge with people's labels, by the judge's version and metric."""
    return {(version, metric): PeopleCheck(*check) for version, metric, *check in _rows(store, _PEOPLE)}


def people_alphas(store: Store) -> dict[tuple[str, str], PeopleAlpha]:
    """Return each judge's agreement with people's labels by the newest comparison, by its version and metric."""
    return {(version, metric): PeopleAlpha(*found) for version, metric, *found in _rows(store, _ALPHAS)}


def _rows(store: Store, query: str) -> list[tuple[Any, ...]]:
    """Ask about the batches by their ids, which DuckDB then finds by the names of the files."""
    if not (batches := people_batches(store)):
        return []
    places = ", ".join(f"${index}" for index in range(1, len(batches) + 1))
    return ask(store, (query.replace("{}", places), [*batches]))[0]


def people_batches(store: Store) -> list[str]:
    """Return the ids of the batches of checks against people's labels. Only the names of files are read."""
    layout, fs = store.layout, store.filesystem
    owners = {*packed_owners(layout, fs, "checks"), *owner_states(layout, fs, "checks")}
    return sorted(owner for owner in owners if owner.startswith(PEOPLE_PREFIX))


_PEOPLE = """
select evaluator_version, metric, batch_id, evaluator, passed, coalesce(message, 'compared with human labels'),
       rejection
from people_checks where batch_id in ({})
"""

_ALPHAS = """
select distinct on (observed ->> 'evaluator_version', subject_id)
       observed ->> 'evaluator_version', subject_id, (observed -> '$.alpha.alpha')::double, n_checked
from checks where batch_id in ({}) and subject_kind = 'judge' and name = 'people'
order by 1, 2, recorded_at desc, check_id desc
"""
