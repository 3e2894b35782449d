"""Failure modes of systems and of production: how often each holds now, over time, by version and by slice, and its
members: those nearest to the middle of all, or all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from evalflows.analysis.figures import percent_estimate
from evalflows.analysis.mode_shares import ModeShare, mode_shares, slices_of
from evalflows.analysis.typical import typical
from evalflows.reports.names import versions_of
from evalflows.reports.results import Result, results_of
from evalflows.reports.slices import slice_means
from evalflows.specs.errors import NotFoundError
from evalflows.specs.failure_modes import OTHER, PREFIX
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.queries.failures import AnswerTexts, texts_of
from evalflows.store.records import from_json
from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

MOST_RUNS, MOST_MEMBERS, MOST_COMPARED = 30, 3, 60
"""Runs of a trend, members of a mode in a table, and its newest ones that these are chosen from."""
MOST_ON_MAP = 500
"""Answers that a map has at most, the first by their ids."""
DAYS, MOST_DAYS = 7, 60
"""Days of production whose rates a table and a mode's page show."""
START = datetime.min.replace(tzinfo=UTC)
OF_OTHER = "It failed in a way that no mode of the file covers."
MOST_SHOWN = 600
"""Characters of an answer that are compared with others."""

_RATES = """
select coalesce(r.experiment, r.evaluation, left(r.experiment_id, -11)), r.subject_kind, r.experiment_id, r.mode,
       r.n_with, r.n, r.rate, r.ci_low, r.ci_high, r.started_at, e.application_version, e.git_commit
from mode_rates r left join experiments e using (experiment_id) order by r.started_at, r.experiment_id
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
select mode, experiment_id, subject_kind, split_part(subject_id, '/', 1), example_id, comment, started_at
from mode_items where list_contains($1, experiment_id) and ($2::varchar is null or mode = $2)
"""

_NEAREST = f"""
{_MEMBERS} qualify row_number() over (
    partition by coalesce(experiment, left(experiment_id, -11)), mode order by started_at desc, score_id
) <= $3 order by started_at desc, score_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An answer, or an item of production, that has a mode, and why."""

    mode: str
    owner: str  # the experiment, or the day of the trace evaluation
    kind: str
    source: str  # the id of the run, trace or session
    example_id: str | None  # None in production
    comment: str | None
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRate:
    """The rate of a mode in one run of a system, on one day of production, of one version or in one slice."""

    name: str  # of the version, the value or the day
    field: str = ""  # of a slice
    owner: str = ""  # the experiment, or the day of the trace evaluation
    at: datetime | None = None  # when it began; None of a version and a slice
    n_with: int
    n: int
    rate: float
    low: float | None
    high: float | None

    @property
    def in_percent(self) -> tuple[str, str]:
        """The rate and its interval as texts."""
        return percent_estimate(self.rate, self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeLine:
    """A mode in the newest run of a system, or on the newest days of production."""

    mode: str
    definition: str | None
    rate: ModeRate
    result: Result | None  # with the difference from the baseline of its run; None of production
    rates: Sequence[float]  # of the newest runs or days, the oldest first
    nearest: Sequence[Member]  # to the middle of all members


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """The modes of a system's newest run, or of a trace evaluation's newest days, the most frequent first."""

    name: str
    experiment_id: str | None  # None in production
    lines: Sequence[ModeLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllModes:
    """The modes of one system and those of production."""

    names: Sequence[str]  # systems with modes, the newest first
    system: Modes | None
    of_production: Sequence[Modes]
    texts: Mapping[str, AnswerTexts]  # by the source of a member; none of sessions

    @property
    def found(self) -> Sequence[Modes]:
        return [*([self.system] if self.system else []), *self.of_production]


class _Rates:
    """All rates that the store has, of experiments and of days of production, the oldest first."""

    def __init__(self, store: Store) -> None:
        self._runs: dict[str, dict[str, list[ModeRate]]] = {}
        self._days: dict[str, dict[str, list[ModeRate]]] = {}
        rows = ask(store, (_RATES, []))[0]
        versions = versions_of((row[2], row[-2], row[-1]) for row in rows if row[1] == "run")
        for name, kind, owner, mode, n_with, n, rate, low, high, at, *_ in rows:
            is_run = kind == "run"
            version = versions[owner].text if owner in versions else ""
            found = ModeRate(
                name=version if is_run else owner[-10:],
                owner=owner,
                at=at,
                n_with=n_with,
                n=n,
                rate=rate,
                low=low,
                high=high,
            )
            (self._runs if is_run else self._days).setdefault(name, {}).setdefault(mode, []).append(found)

    @property
    def systems(self) -> list[str]:
        """The names of experiments with modes, the newest first."""
        return sorted(self._runs, key=lambda name: self._newest(self._runs[name]), reverse=True)

    @property
    def evaluations(self) -> list[str]:
        return sorted(self._days)

    def of(self, name: str, *, is_run: bool) -> Mapping[str, Sequence[ModeRate]]:
        """Return the rates of a system, or of a trace evaluation, by mode: those that its newest taxonomy has."""
        by_mode = (self._runs if is_run else self._days)[name]
        _, newest = self._newest(by_mode)
        return {mode: rates for mode, rates in by_mode.items() if rates[-1].owner == newest}

    def _newest(self, by_mode: Mapping[str, Sequence[ModeRate]]) -> tuple[datetime, str]:
        return max(map(_place, by_mode.values()))


def _place(rates: Sequence[ModeRate]) -> tuple[datetime, str]:
    """Return when the newest of some rates is from, and its experiment or day."""
    return rates[-1].at or START, rates[-1].owner


def modes_of(store: Store, name: str | None) -> AllModes:
    """Return the modes of a system, given by the name of its experiments (default: the newest), and of production."""
    known = _Rates(store)
    names = known.systems
    chosen = name if name in names else next(iter(names), None)
    shares = grouped((share.evaluation, share) for share in mode_shares(store, DAYS)) if known.evaluations else {}
    days = {of: {share.mode: share for share in some} for of, some in shares.items()}
    wanted = [(chosen, True)] if chosen else []
    wanted += [(evaluation, False) for evaluation in known.evaluations if evaluation in days]
    rates = {of: known.of(*of[:1], is_run=of[1]) for of in wanted}
    owners = {of: _owners(by_mode, 1 if of[1] else DAYS) for of, by_mode in rates.items()}
    flat = [owner for some in owners.values() for owner in some]
    members = ask_records(store, Member, _NEAREST, [flat, None, MOST_COMPARED]) if flat else []
    texts = {text.id: text for text in texts_of(store, [member.source for member in members])} if members else {}
    told = definitions(store, [some[-1] for some in owners.values()])
    results = results_of(store, owners[chosen, True]) if chosen else []
    found = []
    for of, by_mode in rates.items():
        is_run, given = of[1], owners[of]
        lines = [
            ModeLine(
                mode=mode,
                definition=told.get((given[-1], mode)),
                rate=some[-1] if is_run else _of_days(days[of[0]][mode]),
                result=next((one for one in results if is_run and one.metric == PREFIX + mode), None),
                rates=[rate.rate for rate in some[-MOST_RUNS:]],
                nearest=_nearest([one for one in members if one.mode == mode and one.owner in given], texts),
            )
            for mode, some in by_mode.items()
        ]
        lines.sort(key=lambda line: (-line.rate.rate, line.mode == OTHER, line.mode))
        found.append(Modes(name=of[0], experiment_id=given[0] if is_run else None, lines=lines))
    return AllModes(
        names=names,
        system=found.pop(0) if chosen else None,
        of_production=found,
        texts=texts,
    )


def _owners(by_mode: Mapping[str, Sequence[ModeRate]], count: int) -> list[str]:
    """Return the newest experiments or days with rates, the oldest of them first."""
    places = {(rate.at or START, rate.owner) for rates in by_mode.values() for rate in rates}
    return [owner for _, owner in sorted(places)[-count:]]


def _of_days(share: ModeShare) -> ModeRate:
    return ModeRate(
        name=share.value,
        field=share.field,
        n_with=share.n_with,
        n=share.n,
        rate=share.share,
        low=share.low,
        high=share.high,
    )


def _nearest(members: Sequence[Member], texts: Mapping[str, AnswerTexts]) -> list[Member]:
    """Return the members nearest to the middle of all, by what was noted about them and what they answered."""
    compared = [
        f"{member.comment or ''} {(text.outputs or '')[:MOST_SHOWN] if (text := texts.get(member.source)) else ''}"
        for member in members
    ]
    return [members[place] for place in typical(compared, MOST_MEMBERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeHistory:
    """One mode of a system, or of a trace evaluation: over time, by version and by slice, and all its members."""

    mode: str
    name: str  # of the system or the trace evaluation
    experiment_id: str | None  # the newest; None in production
    definition: str | None
    over_time: Sequence[ModeRate]  # by run or by day, the oldest first
    by_version: Sequence[ModeRate]  # the newest run of each, or all its items, the newest first
    by_slice: Mapping[str, Sequence[ModeRate]]  # by field, the highest rate first; of the newest run, or of all days
    owners: Sequence[str]  # the experiments or days that its members are from
    places: Sequence[str]  # the systems, then the trace evaluations, that have it

    @property
    def now(self) -> ModeRate:
        return self.over_time[-1]


def mode_history(store: Store, mode: str, name: str | None) -> ModeHistory | None:
    """Return a mode of a system or of a trace evaluation (default: the newest system with a member);
    None if none has it. Raise NotFoundError if that one lacks it."""
    known = _Rates(store)
    places = [(of, True) for of in known.systems] + [(of, False) for of in known.evaluations]
    having = [(of, is_run, rates) for of, is_run in places if (rates := known.of(of, is_run=is_run).get(mode))]
    chosen = next((one for one in having if one[0] == name), None)
    if name and having and chosen is None:
        raise NotFoundError(f"{name}: got no {mode}, wanted one of {', '.join(of for of, *_ in having)}")
    if not having:
        return None
    of, is_run, rates = chosen or next((one for one in having if one[2][-1].n_with), having[0])
    owners = [*dict.fromkeys(rate.owner for rate in rates)]
    rates = rates[-(MOST_RUNS if is_run else MOST_DAYS) :]
    if is_run:
        newest = {rate.name: rate for rate in rates if rate.name}
        by_version, sliced = [*reversed(newest.values())], _slices(store, owners[-1], mode)
    else:
        shares = [share for share in mode_shares(store, MOST_DAYS, mode) if share.evaluation == of]
        by_day = {share.value: share for share in shares if share.field == "day"}
        rates = [
            replace(rate, low=by_day[rate.name].low, high=by_day[rate.name].high)
            for rate in rates
            if rate.name in by_day
        ]
        by_version = [_of_days(share) for share in reversed(shares) if share.field == "version"]
        sliced = [_of_days(share) for share in slices_of(shares)]
    sliced.sort(key=lambda rate: (-rate.rate, rate.name))
    return ModeHistory(
        mode=mode,
        name=of,
        experiment_id=owners[-1] if is_run else None,
        definition=definitions(store, owners[-1:]).get((owners[-1], mode)),
        over_time=rates,
        by_version=by_version,
        by_slice=grouped((rate.field, rate) for rate in sliced),
        owners=owners,
        places=[name for name, *_ in having],
    )


def _slices(store: Store, experiment: str, mode: str) -> list[ModeRate]:
    """Return the rates of a mode in an experiment by split and by metadata."""
    found = []
    ((snapshot,),) = ask(store, ("select snapshot_id from experiments where experiment_id = $1", [experiment]))[0]
    for one in slice_means(store, experiment, snapshot):
        mean = one.mean(PREFIX + mode)
        if mean is None or mean.mean is None:
            continue
        low, high = mean.interval or (None, None)
        n = mean.n_examples
        found.append(
            ModeRate(
                name=one.value,
                field=one.field.removeprefix("metadata."),
                n_with=round(mean.mean * n),
                n=n,
                rate=mean.mean,
                low=low,
                high=high,
            )
        )
    return found


def members_of(
    store: Store, history: ModeHistory, owner: str | None, limit: int, offset: int
) -> tuple[list[Member], int, Mapping[str, AnswerTexts]]:
    """Return some members of a mode, the newest first, in one experiment or in all; how many there are, and texts."""
    owners = [owner] if owner else history.owners
    ordered = f"{_MEMBERS} order by started_at desc, score_id limit $3 offset $4"
    found = ask_records(store, Member, ordered, [owners, history.mode, limit, offset])
    count = f"select count(*) from ({_MEMBERS})"
    ((n,),) = ask(store, (count, [owners, history.mode]))[0]
    texts = {text.id: text for text in texts_of(store, [member.source for member in found])} if found else {}
    return found, n, texts


@dataclass(frozen=True, slots=True, kw_only=True)
class MapMember:
    """An answer on a map: one that has a mode, and a comment that says why."""

    example_id: str
    mode: str  # the first, if it has several
    comment: str


def map_members(store: Store, experiment: str) -> list[MapMember]:
    """Return the answers of an experiment for a map."""
    return ask_records(store, MapMember, _MAP, [experiment, MOST_ON_MAP])


def definitions(store: Store, owners: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the definition of each mode by its owner and its name, from the taxonomies of the owners."""
    found = ask(store, (_SPECS, [owners]))[0]
    told: dict[tuple[str, str], str] = {}
    for owner, spec in found:
        for evaluator in from_json(spec)["evaluators"]:
            taxonomy = (evaluator.get("args") or {}).get("taxonomy")
            if evaluator.get("use") == "failure_modes" and isinstance(taxonomy, dict):
                told |= {(owner, mode["name"]): mode["definition"] for mode in taxonomy["modes"]}
                told[owner, OTHER] = OF_OTHER
    return told
