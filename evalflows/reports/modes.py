"""Failure modes of a system: how often each holds now, against the baseline and over time, and its newest members."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.reports.results import Result, results_of
from evalflows.specs.failure_modes import PREFIX
from evalflows.store.records import from_json
from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

MOST_RUNS, MOST_MEMBERS = 30, 3
MOST_ON_MAP = 500
"""Answers that a map has at most, the first by their ids."""

_NAMES = """
select experiment, max_by(experiment_id, started_at) from mode_rates where subject_kind = 'run'
group by experiment order by max(started_at) desc
"""

_RATES = """
select experiment, subject_kind, experiment_id, mode, n_with, n, rate from mode_rates order by started_at, experiment_id
"""

_MAP = """
select example_id, min(mode), any_value(comment) from mode_items
where experiment_id = $1 and subject_kind = 'run' and comment is not null and trim(comment) <> ''
group by example_id, run_id order by example_id, run_id limit $2
"""

_MEMBERS = """
select experiment_id, mode, coalesce(example_id, subject_id), comment from mode_items
qualify row_number() over (partition by experiment_id, mode order by started_at desc, score_id) <= $1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An answer or a trace that has a mode, and why."""

    id: str  # of the example, or of the trace
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeLine:
    """A mode in the newest run of a system, or on the newest day of production."""

    mode: str
    definition: str | None
    n_with: int
    n: int
    result: Result | None  # with the difference from the baseline of its run; None of production
    rates: Sequence[float]  # of the newest runs or days, the oldest first
    members: Sequence[Member]


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """The modes of one system's newest run, the most frequent first."""

    names: Sequence[str]  # systems with modes, the newest first
    name: str | None
    experiment_id: str | None
    lines: Sequence[ModeLine]
    of_production: Sequence[ModeLine]


def modes_of(store: Store, name: str | None) -> Modes:
    """Return the modes of a system, given by the name of its experiments (default: the newest), and of production."""
    known, rates, members = ask(store, (_NAMES, []), (_RATES, []), (_MEMBERS, [MOST_MEMBERS]))
    names = [one for one, _ in known]
    chosen = name if name in names else next(iter(names), None)
    newest: Mapping[str, str] = dict(known)
    identity = newest.get(chosen or "")
    results = {result.metric: result for result in results_of(store, [identity])} if identity else {}
    told = _told(store, identity)
    runs = [row for row in rates if row[0] == chosen and row[1] == "run"]
    days = [row for row in rates if row[1] != "run"]
    return Modes(
        names=names,
        name=chosen,
        experiment_id=identity,
        lines=_lines(runs, identity, members, told, results),
        of_production=_lines(days, None, members, {}, {}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MapMember:
    """An answer on a map: one that has a mode, and a comment that says why."""

    example_id: str
    mode: str  # the first, if it has several
    comment: str


def map_members(store: Store, experiment: str) -> list[MapMember]:
    """Return the answers of an experiment for a map."""
    return ask_records(store, MapMember, _MAP, [experiment, MOST_ON_MAP])


def _lines(
    rates: Sequence[tuple[Any, ...]],
    identity: str | None,
    members: Sequence[tuple[Any, ...]],
    told: Mapping[str, str],
    results: Mapping[str, Result],
) -> list[ModeLine]:
    by_mode: dict[str, list[tuple[Any, ...]]] = {}
    for row in rates:
        by_mode.setdefault(row[3], []).append(row)
    lines = []
    for mode, rows in by_mode.items():
        _, _, owner, _, n_with, n, _ = rows[-1]
        if identity is not None and owner != identity:
            continue  # a mode that the taxonomy had once
        lines.append(
            ModeLine(
                mode=mode,
                definition=told.get(mode),
                n_with=n_with,
                n=n,
                result=results.get(PREFIX + mode),
                rates=[rate for *_, rate in rows[-MOST_RUNS:]],
                members=[Member(id=i, comment=why) for of, which, i, why in members if (of, which) == (owner, mode)],
            )
        )
    return sorted(lines, key=lambda one: (-one.n_with / one.n, one.mode))


def _told(store: Store, identity: str | None) -> dict[str, str]:
    """Return the definition of each mode in the taxonomies of an experiment."""
    found = ask(store, ("select spec::varchar from experiments where experiment_id = $1", [identity]))[0]
    told: dict[str, str] = {}
    for (spec,) in found:
        for evaluator in from_json(spec)["evaluators"]:
            taxonomy = (evaluator.get("args") or {}).get("taxonomy")
            if evaluator.get("use") == "failure_modes" and isinstance(taxonomy, dict):
                told |= {one["name"]: one["definition"] for one in taxonomy["modes"]}
    return told
