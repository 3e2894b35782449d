"""Finding experiments and comparisons by id, prefix or name, approved baselines, earlier runs, and what was
measured and called before.
"""

from __future__ import annotations  # types of libraries that are imported when first used

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evalflows.specs.errors import TRIAL, InputError, NotFoundError, StorageError, names_to_choose
from evalflows.store.arrow import np
from evalflows.store.records import BaselineRow, CheckRow, ExperimentRow, SubjectKind, from_json, new_id, to_json
from evalflows.store.schemas import TABLES
from evalflows.store.sql import ask, ask_arrow, ask_records, fields_of
from evalflows.store.store import Store

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An approval, valid until the next one of the same name."""

    baseline_id: str
    name: str
    experiment_id: str
    experiment: str | None  # None if it is not in the store
    approved_by: str | None
    reason: str | None
    recorded_at: datetime
    holds: bool


def approved(store: Store, name: str) -> BaselineRow | None:
    """Return the latest approval of a name; None if there is none.

    Raise StorageError if any approval is damaged: it may be the latest one.
    """
    for damage in store.verify_table("baselines"):
        raise damage.error
    query = """select baseline_id from source.baselines
               where name = ? order by recorded_at desc, baseline_id desc limit 1"""
    latest = store.query(query, [name])
    if not latest:
        return None
    row: BaselineRow = store.read("baselines", latest[0][0])[0]
    return row


def approvals(store: Store, experiments: Sequence[str] | None = None) -> list[Approval]:
    """Return the approvals of experiments, given by id, or all: by name, newest first."""
    query = f"""select {fields_of(Approval)} from approvals
                where $1::varchar[] is null or list_contains($1, experiment_id)
                order by name, recorded_at desc, baseline_id desc"""
    return ask_records(store, Approval, query, [None if experiments is None else list(experiments)])


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCalls:
    """Means over paid calls."""

    calls: int
    tokens_in: float
    tokens_out: float
    usd: float | None  # None if the price of a call is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How often a model was called, including answers from the ledger."""

    times: int  # runs, or judgements
    calls_each: float


def calls_of_target(store: Store, version: str) -> PastCalls | None:
    """Return the calls of a target of this version; None if there are none with token counts."""
    condition = (
        "evaluator is null and experiment_id in (select experiment_id from source.experiments where target_version = ?)"
    )
    return _past(store, condition, version)


def calls_of_judge(store: Store, name: str, version: str) -> PastCalls | None:
    """Return the calls of an evaluator of this name and version, pairwise or not."""
    condition = """evaluator = ? and experiment_id in (
                select experiment_id from source.experiments where contains(evaluators, ?)
                union all select comparison_id from source.comparison_sets where contains(evaluators, ?))"""
    return _past(store, condition, name, version, version)


def calls_to_model(store: Store, base_url: str, model: str, *, by_target: bool) -> PastCalls | None:
    """Return the calls of targets, or of evaluators, to a model. `base_url` is in the ledger's form."""
    condition = f"base_url = ? and model = ? and evaluator is {'null' if by_target else 'not null'}"
    return _past(store, condition, base_url, model)


def asked_by_target(store: Store, version: str) -> Asked | None:
    """Return how often a target of this version called a model per run, as far as recorded."""
    query = """select count(*), sum(calls + coalesce(calls_cached, 0)) from source.outputs
               where status in ('ok', 'failed') and reused_from is null and calls is not null
                 and experiment_id in (select experiment_id from source.experiments where target_version = ?)"""
    return _asked(store, query, version)


def asked_by_judge(store: Store, name: str, version: str) -> Asked | None:
    """Return how often an evaluator of this name and version called a model per judgement, as far as recorded."""
    query = """select count(*), sum(calls) from (
                   select sum(calls + coalesce(calls_cached, 0)) as calls, bool_or(calls is null) as is_unknown
                   from staging.scores
                   where evaluator = ? and evaluator_version = ? and status in ('scored', 'failed', 'not_applicable')
                     and coalesce(error_kind, '') <> 'no_output' group by subject_id)
               where not is_unknown"""
    return _asked(store, query, name, version)


def asked_by_pairwise(store: Store, name: str, version: str) -> Asked | None:
    """Return how often a pairwise evaluator called a model per judgement, as far as recorded."""
    query = """select count(*), sum(calls) from (
                   select sum(calls + coalesce(calls_cached, 0)) as calls, bool_or(calls is null) as is_unknown
                   from staging.comparisons where evaluator = ? and evaluator_version = ? and decided_by is null
                     and status in ('scored', 'failed', 'not_applicable')
                   group by left_run_id, right_run_id, shown_first)
               where not is_unknown"""
    return _asked(store, query, name, version)


def in_ledger(store: Store, keys: Iterable[str]) -> int:
    """Return how many of the calls with these keys are in the ledger and reusable."""
    query = """select count(distinct call_key) from source.calls
               where reusable and call_key in (select unnest(?::varchar[]))"""
    return int(store.query(query, [[*keys]])[0][0])


def _past(store: Store, condition: str, *values: str) -> PastCalls | None:
    query = f"""select count(*), avg(tokens_in), avg(coalesce(tokens_out, 0)),
                       case when count(cost_usd) = count(*) then avg(cost_usd) end
                from source.calls where status = 'ok' and tokens_in is not null and {condition}"""
    calls, tokens_in, tokens_out, usd = store.query(query, values)[0]
    return PastCalls(calls=calls, tokens_in=tokens_in, tokens_out=tokens_out, usd=usd) if calls else None


def _asked(store: Store, query: str, *values: str) -> Asked | None:
    times, calls = store.query(query, values)[0]
    return Asked(times=times, calls_each=float(calls or 0) / times) if times else None


Kind = Literal["plan", "backtest"]

SUBJECTS: Mapping[Kind, SubjectKind] = {"plan": "spec", "backtest": "gate"}
"""What a report of each kind is about."""


def keep_report(store: Store, kind: Kind, subject: str, document: Mapping[str, Any], message: str) -> str:
    """Store a report and return its id, such as `plan-01m8…`.

    Args:
        store: The store.
        kind: What it is.
        subject: The name of the spec or the gate.
        document: All figures, as values of JSON.
        message: The report in words.
    """
    identity = new_id(kind)
    row = CheckRow(
        check_id=identity,
        batch_id=identity,
        subject_kind=SUBJECTS[kind],
        subject_id=subject,
        name=kind,
        severity="warning",
        observed=to_json(document, mend=True),
        message=message,
    )
    store.publish("checks", identity, [row])
    return identity


def is_report(reference: str) -> bool:
    """Return whether a reference may mean a kept report: an id, or the beginning of one."""
    return reference.startswith(tuple(f"{kind}-" for kind in SUBJECTS))


def find_report(store: Store, reference: str) -> tuple[Kind, str, dict[str, Any]] | None:
    """Return the kind, id and document of the report with this id or unique prefix; None if there is none.

    Raise InputError if several ids begin with it.
    """
    query = """select batch_id from source.checks where starts_with(batch_id, ?) and batch_id = check_id
               and list_contains(['plan', 'backtest'], name)"""
    found = [identity for (identity,) in store.query(query, [reference])]
    if len(found) > 1:
        raise InputError(f"report {reference!r}: got the prefix of {len(found)} ids, wanted a longer one")
    if not found:
        return None
    (row,) = store.read("checks", found[0])
    return row.name, row.batch_id, from_json(row.observed)


def find_experiments(store: Store, reference: str, *, just_one: bool = False) -> list[str]:
    """Return the ids of the experiments that a reference means; with `just_one`, exactly one.

    A reference is an id, a unique prefix of one, a run group (all of its experiments), a name (the newest experiment of
    that name), a spec's name (its newest run group), or its unique name. `NAME~1` is the run before the newest of a
    name, `NAME~2` that before it. Raise InputError if it means none, or too many, and StorageError if it may mean one
    whose files are damaged.
    """
    rows = store.query(
        """select experiment_id, name, run_group, spec ->> 'name'
           from source.experiments order by started_at desc, target"""
    )
    name, back = name_and_age(reference)
    for exact in (
        [row[0] for row in rows if row[0] == reference],
        [row[0] for row in reversed(rows) if row[2] == reference],
        _run_named(rows, reference, 0),
        _run_named(rows, name, back),
        [row[0] for row in rows if unique_name(row[1], row[0]) == reference],
    ):
        if len(exact) > 1 and just_one:
            names = ", ".join(f"{row[1]}~{back}" if back else row[1] for row in rows if row[0] in exact)
            raise InputError(f"experiment {reference!r}: got {len(exact)} experiments, wanted one of: {names}")
        if exact:
            return exact
    if back and (runs := runs_named(store, name)):
        of_newest = names_of(store, _run_named(rows, name, 0))
        wanted = f"{name!r}" if runs == 1 else f"{name!r} to '{name}~{runs - 1}'"
        wanted = f"one of: {', '.join(of_newest)}" if just_one and len(of_newest) > 1 else wanted
        are = "is only one run" if runs == 1 else f"are only {runs} runs"
        raise NotFoundError(f"experiment {reference!r}: there {are} named {name!r}, wanted {wanted}")
    return [_by_prefix("experiment", store, reference, rows, "which is empty")]


def unique_name(name: str, experiment: str) -> str:
    """Return an experiment's name with the end of its id, which tells it from others of that name."""
    return f"{name}-{experiment[-8:]}"


def name_and_age(reference: str) -> tuple[str, int]:
    """Return the name in a reference, and how many runs of that name are newer: 1 in `NAME~1`, else 0."""
    found = re.fullmatch(r"(.+)~([0-9]{1,6})", reference, re.DOTALL)
    return (found[1], int(found[2])) if found else (reference, 0)


def _run_named(rows: Sequence[tuple[Any, ...]], name: str, back: int) -> list[str]:
    """Return the experiment of a name, else all of a run of a spec's name; rows are newest first."""
    experiments = [row[0] for row in rows if row[1] == name][back : back + 1]
    groups = [*dict.fromkeys(row[2] for row in rows if row[3] == name)][back : back + 1]
    return experiments or [row[0] for row in reversed(rows) if row[2] in groups]


def find_comparison(store: Store, reference: str) -> str:
    """Return the id of the comparison that a reference means.

    A reference is an id, a unique prefix of one, or a name (the newest comparison of that name). Raise InputError if it
    means none, or more than one.
    """
    rows = store.query("select comparison_id, name from source.comparison_sets order by started_at desc, 1 desc")
    exact = [row[0] for row in rows if row[0] == reference] or [row[0] for row in rows if row[1] == reference]
    return exact[0] if exact else _by_prefix("comparison", store, reference, rows, "which has no comparison")


def _by_prefix(kind: str, store: Store, reference: str, rows: list[tuple[Any, ...]], none: str) -> str:
    """Return the only id with this prefix; rows are (id, name, …). Raise InputError if there is none, or several."""
    matches = [row[0] for row in rows if row[0].startswith(reference)]
    if len(matches) == 1:
        return str(matches[0])
    if matches:
        raise InputError(f"{kind} {reference!r}: got the prefix of {len(matches)} ids, wanted a longer one")
    check_left_out(store, f"{kind} {reference!r}", f"{kind}_id")
    name, _ = name_and_age(reference)
    wanted = names_to_choose(name, (row[1] for row in rows), (row[3] for row in rows if len(row) > 3 and row[3]))
    raise NotFoundError(
        f"{kind} {reference!r}: not in {store.layout.root}, {f'wanted an id or {wanted}' if rows else none}"
    )


def runs_named(store: Store, name: str) -> int:
    """Return how many runs have experiments, or a spec, of this name."""
    query = "select count(distinct run_group) from source.experiments where name = $1 or spec ->> 'name' = $1"
    return int(store.query(query, [name])[0][0])


def check_left_out(store: Store, what: str, *columns: str) -> None:
    """Raise StorageError if owners in these columns were left out as damaged: one of them may be what was not found."""
    for damage in store.left_out():
        if TABLES[damage.file.table].owner in columns:
            raise StorageError(f"{what}: not among those that can be read; {damage.error}")


def names_of(store: Store, identities: Sequence[str]) -> list[str]:
    """Return the names of experiments, in their order."""
    query = "select experiment_id, name from source.experiments where list_contains(?, experiment_id)"
    names: dict[str, str] = dict(store.query(query, [list(identities)]))
    return [names[identity] for identity in identities]


def newest_finished(store: Store) -> list[str]:
    """Return the finished experiments of the newest run group that has any. Raise InputError if there are none."""
    query = """select experiment_id, run_group from source.experiments where state = 'completed'
               order by started_at desc, target"""
    rows = store.query(query)
    if not rows:
        raise NotFoundError(f"{store.layout.root}: got no finished experiment, wanted at least one")
    return [identity for identity, group in rows if group == rows[0][1]]


def newest_complete(store: Store, spec_name: str) -> str | None:
    """Return the newest complete experiment of a spec's name, by id, trials excepted; None if there is none."""
    query = """select experiment_id from source.experiments
               where state = 'completed' and spec ->> 'name' = ? and not list_contains(tags, ?)
               order by started_at desc, target limit 1"""
    rows = store.query(query, [spec_name, TRIAL])
    return rows[0][0] if rows else None


def newest_start(
    store: Store, table: str, names: Sequence[str], spec_name: str, run_key: str | None
) -> datetime | None:
    """Return when the newest experiment, or comparison, of some names, a spec's name or a run key was started; None if
    there is none.
    """
    where = "list_contains(?, name) or spec ->> 'name' = ? or run_key = ?"
    ((newest,),) = store.query(f"select max(started_at) from source.{table} where {where}", [names, spec_name, run_key])
    return newest  # type: ignore[no-any-return]


def run_groups(store: Store, identities: Sequence[str]) -> list[str]:
    """Return the run groups of the experiments."""
    query = "select distinct run_group from source.experiments where list_contains(?, experiment_id) order by 1"
    return [group for (group,) in store.query(query, [list(identities)])]


def is_comparison(store: Store, reference: str) -> bool:
    """Return whether a reference means a comparison: an id, a prefix of one, or a name that no experiment has."""
    if reference.startswith("cmp-"):
        return True
    return _has(store, "comparison_sets where name = ?", reference) and not _has(store, _NAMED, reference)


def is_decision(store: Store, reference: str) -> bool:
    """Return whether a reference means a decision: an id, a prefix of one, or the name of a gate that no experiment
    has."""
    if reference.startswith("dec-"):
        return True
    return _has(store, "decisions where gate = ?", reference) and not _has(store, _NAMED, reference)


_NAMED = "experiments where ? in (experiment_id, run_group, name, spec ->> 'name')"


def _has(store: Store, rows: str, reference: str) -> bool:
    """Whether there are such rows, of a table below `source`."""
    return bool(store.query(f"select count(*) from source.{rows}", [reference])[0][0])


def comparison_beside(store: Store, experiments: Sequence[str]) -> str | None:
    """Return the comparison that ran as a step of the experiments' run group; None if there was none."""
    groups = run_groups(store, experiments)
    query = "select comparison_id from source.comparison_sets where list_contains(?, run_key) order by started_at desc"
    rows = store.query(query, [groups])
    return str(rows[0][0]) if len(groups) == 1 and rows else None


Runs: TypeAlias = "npt.NDArray[np.float64]"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBefore:
    """A complete experiment, and one evaluator version of a numeric metric."""

    experiment_id: str
    name: str
    run_group: str
    snapshot_id: str
    dataset_name: str | None
    repetitions: int
    started_at: datetime
    is_baseline: bool  # of its run group
    evaluator_version: str
    is_yes_no: bool
    scored: int  # runs


def measured_before(store: Store, metric: str) -> list[MeasuredBefore]:
    """Return the complete experiments with values of a metric, newest first."""
    return ask_records(store, MeasuredBefore, _MEASURED, [metric])


def run_values(store: Store, experiment: ExperimentRow, metric: str, evaluator_version: str) -> Runs:
    """Return a metric's values, shape (examples, repetitions), in the snapshot's order; NaN if there is none."""
    parameters = [experiment.snapshot_id, experiment.experiment_id, metric, evaluator_version]
    table = ask_arrow(store, _VALUES, parameters)
    place, repetition, value = (table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names)
    runs = np.full((experiment.n_examples, experiment.repetitions), np.nan)
    runs[place, repetition] = value
    return runs


_MEASURED = """
with measured as (
    select experiment_id, evaluator_version, bool_and(coalesce(data_type, 'BOOLEAN') = 'BOOLEAN') as is_yes_no,
           count(value) filter (status = 'scored') as scored
    from run_values where metric = $1 group by all
)
select experiment_id, e.name, e.run_group, e.snapshot_id, e.dataset_name, e.repetitions, e.started_at,
       coalesce(coalesce(e.spec ->> '$.baseline', e.spec ->> '$.targets[0].name') = e.target, false) as is_baseline,
       m.evaluator_version, m.is_yes_no, m.scored
from experiments e join measured m using (experiment_id)
where e.state = 'completed' and m.scored > 0
order by e.started_at desc, e.experiment_id desc
"""

_VALUES = """
with places as (
    select example_id, row_number() over (order by position) - 1 as place from examples where snapshot_id = $1
)
select place, repetition, value from run_values join places using (example_id)
where experiment_id = $2 and metric = $3 and evaluator_version = $4 and status = 'scored' and value is not null
"""


VERDICT_FIELDS = {
    "paired_mean": "candidate_mean",
    "paired_baseline_mean": "baseline_mean",
    "difference": "difference",
    "difference_standard_error": "standard_error",
    "difference_low": "ci_low",
    "difference_high": "ci_high",
    "difference_method": "method",
    "p_value": "p_value",
    "p_adjusted": "p_adjusted",
    "n_pairs": "n_pairs",
    "minimum_detectable_effect": "minimum_detectable_effect",
    "margin": "margin",
    "conclusion": "conclusion",
    "reason": "reason",
    "reason_code": "reason_code",
    "warning": "warning",
}
"""The fields of a result that are a verdict's, and their names in the verdict."""


def conclusions_on(store: Store, experiments: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the newest conclusion of each gate on each of the experiments: by experiment, then by gate."""
    (rows,) = ask(store, (_CONCLUSIONS, [list(experiments)]))
    found: dict[str, dict[str, str]] = {}
    for experiment, gate, conclusion in rows:
        found.setdefault(experiment, {})[gate] = conclusion
    return found


_CONCLUSIONS = """
select candidate_experiment_id, gate, conclusion from gate_decisions
where is_newest and list_contains($1, candidate_experiment_id) order by confirmed_at, decision_id
"""


def decided_verdicts(
    store: Store, candidates: Sequence[str], decisions: Sequence[str] | None = None
) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the verdicts of gates on whole experiments, by candidate, baseline and metric: the columns that
    VERDICT_FIELDS names.

    Of several decisions, or of these `decisions`, the newest counts.
    """
    (rows,) = ask(store, (_DECIDED, [[*candidates], None if decisions is None else [*decisions]]))
    return {(row[0], row[1], row[2]): dict(zip(VERDICT_FIELDS.values(), row[3:], strict=True)) for row in rows}


_DECIDED = f"""
select candidate_experiment_id, baseline_experiment_id, metric, {", ".join(VERDICT_FIELDS.values())}
from verdicts
where is_one_of(candidate_experiment_id, $1) and decision_id is not null and slice is null
      and ($2 is null or list_contains($2, decision_id))
order by recorded_at
"""
