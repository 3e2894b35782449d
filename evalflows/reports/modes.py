"""Failure modes of a system: how often each holds now, against the baseline and over time, and its newest members."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.reports.results import Result, results_of
from evalflows.specs.failure_modes import PREFIX
from evalflows.specs.grouping import grouped
from evalflows.store.queries.failures import AnswerTexts, texts_of
from evalflows.store.records import from_json
from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

MOST_RUNS, MOST_MEMBERS = 30, 3
MOST_ON_MAP = 500
"""Answers that a map has at most, the first by their ids."""

_RATES = """
select experiment, subject_kind, experiment_id, mode, n_with, n, rate from mode_rates order by started_at, experiment_id
"""

_SPECS = """
select experiment_id, spec::varchar from experiments where list_contains($1, experiment_id)
union all select owner, arg_max(spec, started_at)::varchar from (select unnest($1::varchar[]) as owner)
join staging.watermarks on evaluation_id = left(owner, -11) group by 1
"""

_MAP = """
select example_id, min(mode), any_value(comment) from mode_items
where experiment_id = $1 and subject_kind = 'run' and comment is not null and trim(comment) <> ''
group by example_id, run_id order by example_id, run_id limit $2
"""

_MEMBERS = """
select experiment_id, mode, subject_kind, split_part(subject_id, '/', 1), example_id, comment from mode_items
where list_contains($2, experiment_id)
qualify row_number() over (partition by experiment_id, mode order by started_at desc, score_id) <= $1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An answer, or an item of production, that has a mode, and why."""

    owner: str  # the experiment, or the day of the trace evaluation
    mode: str
    kind: str
    source: str  # the id of the run, trace or session
    example_id: str | None  # None in production
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
    texts: Mapping[str, AnswerTexts]  # by the source of a member; none of sessions


def modes_of(store: Store, name: str | None) -> Modes:
    """Return the modes of a system, given by the name of its experiments (default: the newest), and of production."""
    rates = ask(store, (_RATES, []))[0]
    newest: dict[str, str] = {}  # the id of the newest experiment of each name, the newest first
    for row in reversed(rates):
        if row[1] == "run":
            newest.setdefault(row[0], row[2])
    chosen = name if name in newest else next(iter(newest), None)
    identity = newest.get(chosen or "")
    results = {result.metric: result for result in results_of(store, [identity])} if identity else {}
    runs = [row for row in rates if row[0] == chosen and row[1] == "run"]
    days = [row for row in rates if row[1] != "run"]
    lines, of_production = _lines(store, runs, identity, results), _lines(store, days, None, {})
    texts = texts_of(store, [member.source for line in (*lines, *of_production) for member in line.members])
    return Modes(
        names=[*newest],
        name=chosen,
        experiment_id=identity,
        lines=lines,
        of_production=of_production,
        texts={text.id: text for text in texts},
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
    store: Store, rates: Sequence[tuple[Any, ...]], identity: str | None, results: Mapping[str, Result]
) -> list[ModeLine]:
    """Return a line for each mode, by its newest rate; of an experiment, without those that its taxonomy had once."""
    by_mode = grouped((row[3], row) for row in rates)
    owners = {mode: rows[-1][2] for mode, rows in by_mode.items() if identity in (None, rows[-1][2])}
    told = _definitions(store, [*owners.values()])
    members = ask_records(store, Member, _MEMBERS, [MOST_MEMBERS, [*owners.values()]])
    lines = [
        ModeLine(
            mode=mode,
            definition=told.get((owner, mode)),
            n_with=by_mode[mode][-1][4],
            n=by_mode[mode][-1][5],
            result=results.get(PREFIX + mode),
            rates=[rate for *_, rate in by_mode[mode][-MOST_RUNS:]],
            members=[member for member in members if (member.owner, member.mode) == (owner, mode)],
        )
        for mode, owner in owners.items()
    ]
    return sorted(lines, key=lambda line: (-line.n_with / line.n, line.mode))


def _definitions(store: Store, owners: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the definition of each mode by its owner and its name, from the taxonomies of the owners."""
    found = ask(store, (_SPECS, [owners]))[0]
    told: dict[tuple[str, str], str] = {}
    for owner, spec in found:
        for evaluator in from_json(spec)["evaluators"]:
            taxonomy = (evaluator.get("args") or {}).get("taxonomy")
            if evaluator.get("use") == "failure_modes" and isinstance(taxonomy, dict):
                told |= {(owner, mode["name"]): mode["definition"] for mode in taxonomy["modes"]}
    return told
