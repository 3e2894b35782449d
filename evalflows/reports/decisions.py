"""Gate decisions: the conclusion on a candidate, the rules behind it, what could still be wrong with it and in which
slices it got worse, from what is stored, and how to reproduce it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from evalflows.analysis.changes import DepartingSlice, SliceSearch
from evalflows.analysis.figures import allows_for_rare_values, assumed_direction, detected_by, estimate, figure
from evalflows.analysis.judge_exclusions import panels_in, specs_with_steps, stepped_in
from evalflows.reports.names import at, names_apart_in_each
from evalflows.reports.slices import examples_command, where_lines
from evalflows.specs import hints
from evalflows.specs.errors import InputError, NotFoundError, names_to_choose
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import LATENCY, MIN_EXAMPLES, base_metric, is_pass_k, metric_of, sliced_metric
from evalflows.store.described import DIFFERENCES, RuleOutcome, rule_outcomes
from evalflows.store.final_examples import copies_of, copies_text
from evalflows.store.layout import quoted
from evalflows.store.manifests import manifests, newest_evidence
from evalflows.store.queries import conclusions
from evalflows.store.queries.conclusions import approvals
from evalflows.store.queries.invalid_trials import invalid_trials
from evalflows.store.queries.looks import final_ids, look_of, looks_until, unkept_looks
from evalflows.store.queries.lookup import check_left_out
from evalflows.store.queries.people_checks import people_checks
from evalflows.store.records import (
    EXCLUDED,
    DecisionConclusion,
    Json,
    answered_by,
    controls_batch,
    from_json,
    uncommitted_id,
)
from evalflows.store.small_tables import small_tables
from evalflows.store.sql import ask, fields_of, order_by, record_of, records_of
from evalflows.store.store import Store

Section = tuple[str, Sequence[str]]

TABLES = ("experiments", "outputs", "judgements")
"""The tables that the figures are computed from."""

_JUDGES = """
select metric, evaluator, evaluator_version, bool_or(judge_model is not null) from source.judgements
where experiment_id = $1 and subject_kind = 'run' group by all order by all
"""

_PARTS_MISSING = """
select metric, experiment_id = $2 as is_candidate, count(*) filter (status in ('failed', 'not_attempted')) as missing,
       count(*)
from source.judgements
where is_one_of(experiment_id, $1) and subject_kind = 'run' and turn is null and is_one_of(metric, $3)
group by all having missing > 0 order by metric, is_candidate desc
"""

_SEARCH = "select (observed -> 'search')::varchar from source.checks where batch_id = $1 and name = 'slices'"

SORTS = {
    "gate": "lower(gate)",
    "conclusion": "conclusion",
    "candidate": "lower(candidate)",
    "baseline": "lower(baseline)",
    "decided": "confirmed_at",
}
"""What the list is sorted by. Conclusions: FAIL first."""

_MESSAGE = "select message from source.checks where batch_id = $1"

_INPUTS = "select count(*), count(distinct inputs), count(cluster) from source.examples where snapshot_id = $1"

FEW_ALIKE = 0.01
"""The share of examples with the inputs of others from which a decision says so."""

_CONTROLS = "select subject_id, passed from source.checks where batch_id = $1 and subject_kind = 'judge'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    decision_id: str
    gate: str
    conclusion: str
    summary: str
    candidate_experiment_id: str
    candidate: str
    baseline_experiment_id: str | None
    baseline: str | None
    confidence_level: float
    n_shared: int | None
    interim_analyses: int | None
    calls_saved: int | None
    earlier_decisions: int  # on the candidate, with other rules or another baseline
    decided_at: datetime
    evalflows_version: str
    git_commit: str | None
    flow_run_id: str | None
    reasons: Any  # JSON
    comparability: Any
    policy: Any
    candidate_apart: str  # the names that tell the two apart; the same unless both experiments have one name
    baseline_apart: str | None
    limits: Sequence[str] = ()  # what could still be wrong with it, in words; only `with_limits` looks for it
    where: Sequence[str] = ()  # in which slices it got worse, in words; only `with_limits` looks for it
    where_command: str | None = None  # shows the examples of the first of these slices
    manifest_sha256: str | None = None  # of the manifest that names its evidence; only `with_manifests` looks for it

    def __str__(self) -> str:
        """Return the conclusion, the outcome of each rule, and what limits them, a line each."""
        rules = (f"  {rule.outcome}  {rule.text}" for rule in self.rules)
        return "\n".join((f"{self.conclusion}  {self.title}", *rules, *(f"  limit  {one}" for one in self.what_limits)))

    @property
    def rules(self) -> list[RuleOutcome]:
        return rule_outcomes(self.reasons)

    @property
    def notes(self) -> list[str]:
        """Differences between candidate and baseline, and earlier decisions on the candidate, in words."""
        return [*(difference["text"] for difference in from_json(self.comparability) or ()), *self._looks]

    @property
    def what_limits(self) -> list[str]:
        """Everything that limits the decision, in words."""
        return [*self.limits, *self.notes]

    @property
    def _looks(self) -> list[str]:
        """How many decisions with other rules or baselines were made on the candidate before."""
        if not self.earlier_decisions:
            return []
        return [
            f"{_ordinal(self.earlier_decisions + 1)} decision on this experiment: its p-values are not adjusted for "
            f"earlier ones with other rules or another baseline"
        ]

    @property
    def title(self) -> str:
        against = f" against {self.baseline_apart}" if self.baseline_apart else ""
        return f"gate {self.gate}: {self.candidate_apart}{against}"

    @property
    def suite(self) -> str:
        """The title without what differs from one run to the next: CI systems compare a suite with that of before."""
        if self.baseline is None:
            return f"gate {self.gate}: {self.candidate}"
        against = "its baseline" if self.baseline == self.candidate else self.baseline
        return f"gate {self.gate}: {self.candidate} against {against}"

    @property
    def sentence(self) -> str:
        """`gate release: new against old: FAIL: correctness is worse by more than 0.05: …`."""
        return f"{self.title}: {self.conclusion}: {self.summary}"


def rule_texts(rule: RuleOutcome, value: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """Return a value and an interval of a rule in words, with enough digits to tell them from its bound."""
    marks = (0.0, rule.bound, -rule.bound) if rule.is_difference else (rule.bound,)
    return estimate(value, low, high, metric_of(rule.metric), signed=rule.is_difference, marks=marks)


STORED = Decision.__slots__[:-6]
"""The fields that the store has, in its view `gate_decisions`."""


def _ordinal(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


def decisions_of(store: Store, experiments: Sequence[str]) -> list[Decision]:
    """Return the newest decision of each gate on each of the experiments."""
    if not conclusions.decisions_on(store, experiments):
        return []
    return _decisions(store, "is_newest and is_one_of(candidate_experiment_id, $1)", [list(experiments)])


def failed_decision(store: Store, experiment: str) -> Decision | None:
    """Return the first newest decision of a gate that says FAIL of an experiment; None if there is none."""
    if not conclusions.decisions_on(store, [experiment], "FAIL"):
        return None
    return next((decision for decision in decisions_of(store, [experiment]) if decision.conclusion == "FAIL"), None)


def decisions_named(store: Store, identities: Sequence[str]) -> list[Decision]:
    """Return the decisions with these ids, in their order."""
    decisions = _decisions(store, "is_one_of(decision_id, $1)", [list(identities)]) if identities else []
    by_id = {decision.decision_id: decision for decision in decisions}
    return [by_id[identity] for identity in identities]


def decisions_on(store: Store, candidate: str) -> list[Decision]:
    """Return all decisions on an experiment as candidate, newest first."""
    return _decisions(store, "candidate_experiment_id = $1", [candidate])[::-1]


def decisions_beside(store: Store, decision: Decision) -> list[Decision]:
    """Return the newest decision of the same gate on each experiment of the candidate's run, also the candidate."""
    where = """is_newest and gate = $1 and candidate_experiment_id in (
        select one.experiment_id from experiments one join experiments own using (run_group)
        where own.experiment_id = $2)"""
    return _decisions(store, where, [decision.gate, decision.candidate_experiment_id])


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionChoice:
    """Which decisions are listed. None does not restrict them."""

    gate: str | None = None
    conclusion: str | None = None
    text: str | None = None  # within the candidate's or the baseline's name


def listed_decisions(
    store: Store, choice: DecisionChoice, *, page: int, in_page: int, sort: str = "-decided"
) -> tuple[list[Decision], int]:
    """Return a page of the decisions, sorted by one of SORTS, and how many there are; `page` counts from 1."""
    values = [choice.gate, choice.conclusion, choice.text, in_page, in_page * (page - 1)]
    order = order_by(sort, SORTS, "confirmed_at desc, decision_id desc")
    with small_tables(store) as ask_copies:
        rows = ask_copies(f"{_LISTED} {order} limit $4 offset $5", values)
    return _read(store, [row for *row, _ in rows]), rows[0][-1] if rows else 0


def newest_decisions(store: Store, conclusion: DecisionConclusion) -> list[Decision]:
    """Return the newest decision of each gate of each spec, if it has this conclusion, newest first."""
    with small_tables(store) as ask_copies:
        rows = ask_copies(_NEWEST, [conclusion])
    return _read(store, rows)


def with_manifests(store: Store, decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions with the hash of each one's manifest, which binds it to its evidence."""
    found = newest_evidence(manifests(store.layout, store.filesystem, {decision.decision_id for decision in decisions}))
    return [
        replace(decision, manifest_sha256=found[decision.decision_id].sha256)
        if decision.decision_id in found
        else decision
        for decision in decisions
    ]


def gate_names(store: Store) -> list[str]:
    """Return the names of gates that have decisions."""
    (known,) = ask(store, ("select distinct gate from gate_decisions order by gate", []))
    return [gate for (gate,) in known]


def other_specs(store: Store, decision: Decision) -> list[str]:
    """Return the names of other specs than the candidate's with decisions of a gate of the same name."""
    query = """select distinct e.spec ->> 'name' as other
               from gate_decisions d join experiments e on e.experiment_id = d.candidate_experiment_id
               join experiments own on own.experiment_id = $2
               where d.gate = $1 and (e.spec ->> 'name') <> (own.spec ->> 'name') order by other"""
    (rows,) = ask(store, (query, [decision.gate, decision.candidate_experiment_id]))
    return [other for (other,) in rows]


def find_decision(store: Store, reference: str) -> Decision:
    """Find a decision by its id, a unique prefix of it, the gate's name (its newest decision), or the candidate
    experiment's name or id, or its spec's name (the newest decision on it). Raise InputError if there is none, or more
    than one."""
    meant = """starts_with(decision_id, $1) or $1 in (gate, candidate, candidate_experiment_id)
               or candidate_experiment_id in (select experiment_id from experiments where spec ->> 'name' = $1)"""
    found = _decisions(store, meant, [reference])
    by_id = [decision for decision in found if decision.decision_id.startswith(reference)]
    if len(by_id) > 1:
        raise InputError(f"decision {reference!r}: got the prefix of {len(by_id)} ids, wanted a longer one")
    named = by_id or found
    if not named:
        check_left_out(store, f"decision {reference!r}", "decision_id", "experiment_id")
        known = gate_names(store)
        wanted = f"wanted an id or a gate ({names_to_choose(reference, known)})" if known else "which has no decisions"
        raise NotFoundError(f"decision {reference!r}: not in {store.layout.root}, {wanted}")
    return named[-1]


def _decisions(store: Store, where: str, values: Sequence[object]) -> list[Decision]:
    (rows,) = ask(
        store, (f"select {_COLUMNS} from gate_decisions where {where} order by confirmed_at, decision_id", values)
    )
    return _read(store, rows)


def _read(store: Store, rows: Sequence[Sequence[Any]]) -> list[Decision]:
    """Return rows of _COLUMNS as records. Raise StorageError for a damaged file of one."""
    decisions = [record_of(Decision, row, limits=()) for row in rows]
    store.verify((decision.decision_id for decision in decisions), {"decisions"})
    return _named_apart(store, decisions)


def _named_apart(store: Store, decisions: Sequence[Decision]) -> list[Decision]:
    """Tell the candidate of each decision from a baseline of the same name."""
    alike = [
        decision
        for decision in decisions
        if decision.baseline == decision.candidate and decision.baseline_experiment_id
    ]
    sides = [(decision.candidate_experiment_id, str(decision.baseline_experiment_id)) for decision in alike]
    groups = [dict.fromkeys(both, decision.candidate) for both, decision in zip(sides, alike, strict=True)]
    named = {
        d.decision_id: replace(d, candidate_apart=apart[candidate], baseline_apart=apart[baseline])
        for d, (candidate, baseline), apart in zip(alike, sides, names_apart_in_each(store, groups), strict=True)
    }
    return [named.get(decision.decision_id, decision) for decision in decisions]


_COLUMNS = ", ".join([*STORED, "candidate as candidate_apart", "baseline as baseline_apart"])

_NEWEST = f"""
select {_COLUMNS} from gate_decisions where conclusion = $1 and decision_id in (
    select arg_max(decision_id, confirmed_at)
    from gate_decisions join source.experiments e on e.experiment_id = candidate_experiment_id
    group by gate, e.spec ->> 'name'
) order by confirmed_at desc
"""

_LISTED = f"""
select {_COLUMNS}, count(*) over () from gate_decisions
where ($1::varchar is null or gate = $1) and ($2::varchar is null or conclusion = $2)
  and ($3::varchar is null or contains(lower(candidate), lower($3)) or contains(lower(baseline), lower($3)))
"""


def explained(store: Store, decision: Decision) -> Iterator[Section]:
    """Yield each section with its lines."""
    yield "In the store", list(identities(store, decision))
    yield "Rules and settings", list(_settings(decision))
    yield f"The data behind each rule, by example ({hints.sql('QUERY')})", list(_queries(decision))
    yield "The files", list(_files(store, decision))


def values_query(name: str, experiment: str) -> str:
    """Return SQL for a metric's value per example of an experiment, averaged over repetitions, with the example; of a
    slice only its examples."""
    metric, path, value = sliced_metric(name)
    within = "" if path is None else f" and {_column(path)} = {quoted(value or '')}"
    return (
        f"select x.example_id, avg(s.value) filter (s.status = 'scored') as value,"
        f" count(*) filter (s.status in ('failed', 'not_attempted')) as missing, any_value(x.inputs) as inputs,"
        f" any_value(x.reference_outputs) as reference_outputs"
        f" from run_values s"
        f" join experiments e using (experiment_id)"
        f" join examples x on x.snapshot_id = e.snapshot_id and x.example_id = s.example_id"
        f" where s.experiment_id = {quoted(experiment)} and s.metric = {quoted(metric)}{within}"
        f" group by x.example_id"
    )


def _column(path: str) -> str:
    """Return SQL for the value of an example at a path such as `split` or `metadata.topic`, as text."""
    column, *fields = path.split(".")
    inside = ".".join(f'"{field}"' for field in fields)
    return f"x.{column}" if not fields else f"(x.{column}::json ->> {quoted(f'$.{inside}')})"


def pairs_query(metric: str, candidate: str, baseline: str) -> str:
    """Return the same SQL for two experiments side by side: one row per example that both have, with the same inputs
    and references."""
    return (
        f"select example_id, c.value as candidate, b.value as baseline, c.value - b.value as difference,"
        f" c.missing as candidate_missing, b.missing as baseline_missing"
        f" from ({values_query(metric, candidate)}) c join ({values_query(metric, baseline)}) b using (example_id)"
        f" where c.inputs = b.inputs and c.reference_outputs is not distinct from b.reference_outputs"
        f" order by example_id"
    )


def identities(store: Store, decision: Decision) -> Iterator[str]:
    """Yield what was compared, by whom its baseline had been approved, and the manifest that binds it, in lines."""
    yield f"decision   {decision.decision_id} of {decision.decided_at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"candidate  {decision.candidate_apart} ({decision.candidate_experiment_id})"
    known = manifests(store.layout, store.filesystem, {decision.decision_id})
    if decision.baseline_experiment_id:
        yield f"baseline   {decision.baseline_apart} ({decision.baseline_experiment_id})"
        owners = {owner for of in known.values() for m in of if m.evidence for owner in m.evidence.owners}
        counted = [
            approval
            for approval in approvals(store, [decision.baseline_experiment_id])
            if approval.baseline_id in owners
        ]
        if counted:
            then = min(counted, key=lambda approval: approval.recorded_at)  # later ones only confirmed the decision
            door = f", {then.door}" if then.door else ""
            yield f"approved   as {then.name} by {then.approved_by or 'somebody'}, {at(then.recorded_at)}{door}"
        yield f"examples   {decision.n_shared} shared, with the same inputs"
    elif decision.baseline:
        yield f"baseline   {decision.baseline}"
    newest = newest_evidence(known).get(decision.decision_id)
    yield f"manifest   {newest.sha256 if newest else 'none that names its evidence'}"


def _settings(decision: Decision) -> Iterator[str]:
    commit = f"; your repository at commit {decision.git_commit[:12]}" if decision.git_commit else ""
    yield f"confidence level {decision.confidence_level:g}; evalflows {decision.evalflows_version}{commit}"
    policy = {name: value for name, value in from_json(decision.policy).items() if value not in (None, {}, [])}
    import yaml  # late: it is slow to import

    yield from yaml.safe_dump(policy, sort_keys=False, allow_unicode=True).splitlines()


def _queries(decision: Decision) -> Iterator[str]:
    yield f"select * from gate_rules where decision_id = {quoted(decision.decision_id)}"
    yield f"select * from verdicts where decision_id = {quoted(decision.decision_id)}"
    for metric, kinds in _kinds(decision).items():
        if is_pass_k(metric_of(metric)):
            yield f"-- {metric}: computed from the repetitions of its base metric"
            continue
        if decision.baseline_experiment_id and kinds & DIFFERENCES:
            later = ", including later runs" if decision.interim_analyses else ""
            yield f"-- {metric}, candidate and baseline{later}"
            yield pairs_query(metric, decision.candidate_experiment_id, decision.baseline_experiment_id)
        if kinds & {"threshold", "confident_threshold"}:
            yield f"-- {metric}, candidate"
            yield values_query(metric, decision.candidate_experiment_id)


def _kinds(decision: Decision) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {}
    for rule in decision.rules:
        kinds.setdefault(rule.metric, set()).add(rule.rule)
    return kinds


def _files(store: Store, decision: Decision) -> Iterator[str]:
    yield _file(store, "decisions", decision.decision_id)
    if decision.baseline_experiment_id:
        yield _file(store, "verdicts", decision.decision_id)
    for identity in filter(None, (decision.candidate_experiment_id, decision.baseline_experiment_id)):
        yield from (_file(store, name, identity) for name in TABLES)


def _file(store: Store, table: str, owner: str) -> str:
    return store.sealed_file(table, owner) or f"{store.layout.open_folder(table, owner)}/*.parquet"


# Not rows of the tables: pyarrow, which reads those, takes longer to import than all of this.
@dataclass(frozen=True, slots=True, kw_only=True)
class _Experiment:
    """A side of a decision."""

    experiment_id: str
    run_group: str
    snapshot_id: str
    spec: str
    state: str
    reason: str | None
    target: str
    target_kind: str
    application_version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A verdict of a decision, by its metric, `contains@split=hard` of a slice."""

    name: str
    metric: str
    candidate_mean: float | None
    baseline_mean: float | None
    n_pairs: int
    minimum_detectable_effect: float | None
    power: float | None
    standard_error: float | None
    method: str
    worst_case_ci_low: float | None
    worst_case_ci_high: float | None
    warning: str | None


def with_limits(store: Store, decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions with what could still be wrong with each, and where it got worse."""
    return [with_slices(store, replace(decision, limits=list(_limits(store, decision)))) for decision in decisions]


def limits_of_figures(decision: Decision, spec: Json, verdicts: Iterable[Tested]) -> Iterator[str]:
    """Yield what the figures of a decision limit it by; `spec` is the candidate's."""
    tested = {record.name: record for record in verdicts}
    for rule in decision.rules:
        yield from _of_rule(rule, tested.get(rule.metric))
    for name, row in sorted(tested.items()):
        yield from _of_pairs(name, row, decision.n_shared)
    yield from _of_directions(spec, tested.values())


def with_slices(store: Store, decision: Decision) -> Decision:
    """Return a decision with the slices in which it got worse, or fails; unchanged if none was searched or did."""
    (rows,) = ask(store, (_SEARCH, [decision.decision_id]))
    return with_search(decision, from_json(rows[0][0])) if rows else decision


def with_search(decision: Decision, fields: dict[str, Any]) -> Decision:
    """Return a decision with what a search of slices found; `fields` are those of a SliceSearch."""
    if decision.baseline_apart is None:
        return decision
    search = SliceSearch(**fields | {"found": [DepartingSlice(**departing) for departing in fields["found"]]})
    is_worse = any(departing.got_worse for departing in search.found)  # then the first one is
    if decision.conclusion != "FAIL" and not is_worse:
        return decision
    command = examples_command(search, str(decision.baseline_experiment_id)) if is_worse else None
    return replace(decision, where=where_lines(search), where_command=command.command if command else None)


def _limits(store: Store, decision: Decision) -> Iterator[str]:
    sides = [decision.candidate_experiment_id, decision.baseline_experiment_id]
    whose = {"experiment_id": [side for side in sides if side], "run_group": [decision.decision_id]}
    with store.reading(only=whose):
        of_sides, judges, verdicts = ask(
            store, (_SIDES, sides), (_JUDGES, sides[:1]), (_TESTED, [decision.decision_id])
        )
    experiments = {record.experiment_id: record for record in records_of(_Experiment, of_sides)}
    candidate = experiments[decision.candidate_experiment_id]
    (uncommitted,) = ask(store, (_MESSAGE, [uncommitted_id(candidate.run_group)]))
    yield from (sentence for (sentence,) in uncommitted)
    yield from _of_inputs(store, candidate)
    yield from limits_of_figures(decision, candidate.spec, records_of(Tested, verdicts))
    yield from _of_parts_left_out(store, decision, candidate, [side for side in sides if side])
    metrics = _metrics_of_rules(decision, candidate)
    specs = specs_with_steps(store, [side for side in sides if side])
    panels = {(panel.owner, panel.metric): panel for panel in panels_in(store, specs) if panel.metric in metrics}
    left_out = {name for (owner, _), panel in panels.items() if owner == sides[0] for name in panel.metrics_left_out}
    of_panels = {metric for _, metric in panels}
    counted = [
        (metric, name, version, is_model and metric not in of_panels)
        for metric, name, version, is_model in judges
        if metric not in left_out
    ]
    yield from _of_judges(store, metrics, counted, candidate.run_group)
    yield from _of_stepped(store, decision, metrics, specs)
    yield from dict.fromkeys(panel.whole_text for panel in panels.values() if not panel.is_whole)
    yield from _of_versions(decision, experiments)
    yield from (side.text for side in invalid_trials(store, [side for side in sides if side]))
    yield from _of_looks(store, decision, experiments)
    yield from _of_other_runs(store, decision, experiments)
    if decision.baseline_experiment_id is None and candidate.state != "completed":  # else it is among the differences
        yield f"the candidate is {candidate.state}{f': {candidate.reason}' if candidate.reason else ''}"


def _of_inputs(store: Store, candidate: _Experiment) -> Iterator[str]:
    with store.reading(only={"snapshot_id": [candidate.snapshot_id]}):
        (counts,) = ask(store, (_INPUTS, [candidate.snapshot_id]))[0]
    yield from limits_of_inputs(*counts)


def limits_of_inputs(count: int, different: int, clustered: int) -> Iterator[str]:
    """Say whether more than a few examples have the same inputs, and no clusters tell so."""
    if not clustered and count - different > FEW_ALIKE * count:
        yield (
            f"the {count} examples have {different} different inputs: equal ones count as independent, which narrows "
            "intervals (a cluster for each counts them together)"
        )


def _of_parts_left_out(store: Store, decision: Decision, candidate: _Experiment, sides: Sequence[str]) -> Iterator[str]:
    """Say which composites of the rules leave out missing parts, and of how many answers."""
    named = {base_metric(metric_of(rule.metric)) for rule in decision.rules}
    for composite in from_json(candidate.spec).get("composites", []):
        if composite["name"] not in named or composite.get("missing") != "leave_out":
            continue
        with store.reading(only={"experiment_id": sides}):
            values = [sides, candidate.experiment_id, [*composite["weights"]]]
            (rows,) = ask(store, (_PARTS_MISSING, values))
        counts = [
            f"{n} of {count} scores of {metric} of the {'candidate' if is_candidate else 'baseline'}"
            for metric, is_candidate, n, count in rows
        ]
        if counts:
            yield f"{composite['name']}: missing parts are left out (missing: leave_out): {', '.join(counts)}"


def _of_rule(rule: RuleOutcome, tested: Tested | None) -> Iterator[str]:
    if _is_untested(rule):  # its text says why
        return
    name, n = f"{rule.metric}, {rule.name}", rule.n
    if rule.n_missing:
        yield f"{name}: {_missing(rule, tested)}"
    if n is not None and n < MIN_EXAMPLES:  # a gate may ask for fewer
        yield f"{name}: n = {n}, fewer than the {MIN_EXAMPLES} that gates ask for by default"
    if (
        rule.rule == "threshold"
        and rule.low is not None
        and rule.high is not None
        and rule.low <= rule.bound <= rule.high
    ):
        yield (
            f"{name}: only the mean counts, and its interval {_interval(rule, rule.low, rule.high)} includes the "
            f"bound {rule.bound:g}: chance may have decided (confident_thresholds take it into account)"
        )
    is_open = rule.outcome == "open" and rule.is_difference
    if is_open and tested and tested.minimum_detectable_effect is not None:
        size = figure(_detectable(rule, tested, tested.minimum_detectable_effect), tested.metric)
        whose = "" if tested.name == tested.metric else "the slice's "
        yield f"{name}: {whose}{tested.n_pairs} pairs detect a difference of {size} or more ({tested.power:.0%} power)"


def _detectable(rule: RuleOutcome, tested: Tested, by_test: float) -> float:
    """Return the difference that a rule's pairs detect: by the test of no difference, or by an interval that allows for
    rare values, from the rule's bound."""
    allows = allows_for_rare_values(tested.method) and (rule.rule != "superiority" or rule.bound)
    known = (rule.value, rule.low, rule.high, tested.standard_error, tested.power)
    if not allows or any(part is None for part in known):
        return by_test
    value, low, high, error, power = (part for part in known if part is not None)
    return max(by_test, detected_by((low, high), value, error, power))


def _is_untested(rule: RuleOutcome) -> bool:
    """Return whether a rule is open because it has no estimate or interval, or too few examples."""
    if rule.outcome != "open":
        return False
    has_interval = rule.rule == "threshold" or rule.low is not None
    return rule.value is None or not has_interval or rule.reason_code == "below_min_examples"


def _missing(rule: RuleOutcome, tested: Tested | None) -> str:
    """Return how many values are missing for a rule, and what they can change at worst."""
    count = f"{rule.n_missing} missing value{'' if rule.n_missing == 1 else 's'}"
    if rule.reason_code == "missing_unbounded":
        return f"{count}; no declared range bounds what they can change"
    effect = f"; the rule is {rule.outcome} in any case" if rule.outcome != "open" else ""
    if rule.reason_code == "missing_could_flip":
        effect = ", which can change the outcome"
    ends = (tested.worst_case_ci_low, tested.worst_case_ci_high) if tested and rule.is_difference else (None, None)
    return f"{count}{effect}" + (f"; worst-case interval {_interval(rule, *ends)}" if None not in ends else "")


def _interval(rule: RuleOutcome, low: float | None, high: float | None) -> str:
    return rule_texts(rule, None, low, high)[1]


def _of_directions(spec: Json, tested: Iterable[Tested]) -> Iterator[str]:
    """Yield each metric whose direction is assumed, or that is said to have no rare losses, once for all its slices."""
    declared = (from_json(spec) or {}).get("metrics") or {}
    means: dict[str, list[float | None]] = {}
    for row in tested:
        means.setdefault(row.metric, []).extend((row.candidate_mean, row.baseline_mean))
    for metric, of_metric in sorted(means.items()):
        is_declared = any((declared.get(metric) or {}).get(key) is not None for key in ("higher_is_better", "range"))
        if text := assumed_direction(metric, is_declared, of_metric):
            yield text
        if (declared.get(metric) or {}).get("rare_losses") is False:
            yield f"{metric}: the spec says that rare worst values cannot occur (rare_losses: false)"


def _of_pairs(name: str, tested: Tested, n_shared: int | None) -> Iterator[str]:
    if tested.warning:
        yield f"{name}: {tested.warning}"
    if name == LATENCY and n_shared and 0 < tested.n_pairs < n_shared:
        which = "those answered side by side, without the first"
        yield f"{LATENCY}: {tested.n_pairs} of {n_shared} pairs: {which}"


def _metrics_of_rules(decision: Decision, candidate: _Experiment) -> dict[str, list[str]]:
    """Return the metrics of the rules by each base metric that they depend on, as composites do on their parts.

    Those whose rules are open because of their judge are left out: the rules say so.
    """
    composites = from_json(candidate.spec).get("composites", [])  # without the specs' models, which are slow to import
    parts = {
        composite["name"]: {*composite["weights"], *composite.get("requirements", {}), *composite.get("panel", ())}
        for composite in composites
    }
    found: dict[str, dict[str, None]] = {}
    for rule in decision.rules:
        metric = base_metric(metric_of(rule.metric))
        for base in () if rule.reason_code in EXCLUDED else (metric, *sorted(parts.get(metric, ()))):
            found.setdefault(base, {})[rule.metric] = None
    return {base: [*metrics] for base, metrics in found.items()}


def _of_judges(
    store: Store, metrics: Mapping[str, Sequence[str]], judges: Sequence[tuple[str, str, str, bool]], run_group: str
) -> Iterator[str]:
    """Yield the judges that neither known-answer controls nor people's labels have validated, or that labels have
    rejected since the decision.

    `judges` are (metric, name, version, whether it is a model), and `metrics` those of the rules by the judge's.
    """
    used: dict[tuple[str, str, bool], list[tuple[str, Sequence[str]]]] = {}
    for metric, evaluator, version, is_model in judges:
        if metric in metrics:
            used.setdefault((evaluator, version, is_model), []).append((metric, metrics[metric]))
    if not used:
        return
    ((controls,), people) = ask(store, (_CONTROLS, [controls_batch(run_group)])), people_checks(store)
    validated = dict(controls)
    for (name, version, is_model), by_metric in used.items():
        of_rules = dict.fromkeys(metric for _, metrics_of_part in by_metric for metric in metrics_of_part)
        judge = f"{', '.join(of_rules)}: the judge {name}"
        checks = [check for base, _ in by_metric if (check := people.get((version, base)))]
        if any(not check.passed for check in checks):
            yield f"{judge} does not agree with people's labels better than chance"
        elif is_model and name not in validated and not checks:
            yield f"{judge} is not validated: it had no known-answer controls, and no check against people's labels"


def _of_stepped(
    store: Store, decision: Decision, metrics: Mapping[str, Sequence[str]], specs: Mapping[str, str]
) -> Iterator[str]:
    """Yield the fallbacks and earlier tiers that judged more than a few items in place of the judge."""
    sides = {decision.candidate_experiment_id: "candidate", decision.baseline_experiment_id or "": "baseline"}
    for stepped in stepped_in(store, specs):
        if stepped.metric in metrics:
            yield f"{stepped.text} answers of the {sides[stepped.owner]}"


def _of_versions(decision: Decision, experiments: Mapping[str, "_Experiment"]) -> Iterator[str]:
    """Yield the applications whose version is not known; of two, their differences may already say it."""
    if any(difference["what"] == "target" for difference in from_json(decision.comparability) or ()):
        return
    sides = {"candidate": decision.candidate_experiment_id, "baseline": decision.baseline_experiment_id}
    rows = [(name, row) for name, identity in sides.items() if (row := experiments.get(identity or ""))]
    kinds = {name: answered_by(row.target_kind, row.target, row.spec) for name, row in rows}
    if unknown := [name for name, row in rows if kinds[name] == "http" and row.application_version is None]:
        yield (
            f"the version of the {' and the '.join(unknown)} is unknown: the HTTP application does not report it, and "
            f"may have changed (set version, version_url or version_header in the spec)"
        )


def _of_looks(store: Store, decision: Decision, experiments: Mapping[str, "_Experiment"]) -> Iterator[str]:
    """Yield how often the final examples were run, why once more than allowed, and which side lacks them."""
    look = look_of(store, experiments[decision.candidate_experiment_id].run_group)
    baseline = experiments.get(decision.baseline_experiment_id or "")
    if baseline is not None and not decision.n_shared:
        if look is not None:
            yield (
                "the baseline has no answers to the final examples: run its version by this gate and approve that run, "
                "or make it a target of the spec"
            )
        elif look_of(store, baseline.run_group) is not None:
            yield "the baseline has answers to the final examples, which this run leaves out: the gate compares on them"
    if look is None:
        return
    if copies := copies_of(store, final_ids(store, [decision.candidate_experiment_id])):
        yield copies_text(copies)
    if look.again is None:
        since = "since the baseline was approved" if look.since else "so far"
        each = "each " if look.is_equal_share else ""
        level = f", {each}at {50 * (1 - decision.confidence_level):.2f} %" if look.share else ""
        yield f"look {look.number} of {look.allowed} at the final examples {since}{level}"
    if unkept := unkept_looks(store, look.snapshot, look.since):
        yield (
            f"{len(unkept)} more {'run' if len(unkept) == 1 else 'runs'} of the final examples, such as {unkept[-1]}: "
            "rows of looks in `checks` were removed"
        )
    for other in looks_until(store, look):
        if other.is_reading:
            yield f"look {other.number} at the final examples: {other.by or 'somebody'} read single ones"
        if other.again:
            yield f"look {other.number} at the final examples, beyond the {other.allowed} allowed: {other.again}"


def _of_other_runs(store: Store, decision: Decision, experiments: Mapping[str, "_Experiment"]) -> Iterator[str]:
    """Yield how often the gate did not pass the same version on the same examples before it passed it.

    A version of an HTTP application that is unknown may have changed.
    """
    candidate = experiments[decision.candidate_experiment_id]
    is_unknown = answered_by(candidate.target_kind, candidate.target, candidate.spec) == "http"
    if decision.conclusion != "PASS" or (is_unknown and candidate.application_version is None):
        return
    sides = [decision.candidate_experiment_id, decision.baseline_experiment_id]
    (others,) = ask(store, (_OTHER_RUNS, [*sides, decision.gate, decision.decided_at]))
    if not others:
        return
    n = sum(count for _, count in others)
    runs = f"{n} earlier run{'s' if n > 1 else ''} of this version on these examples did not pass"
    counts = ", ".join(f"{count} {conclusion}" for conclusion, count in others)
    yield f"{runs} ({counts}): running a version until it passes makes a wrong PASS more likely than the level says"


_OTHER_RUNS = """
select o.conclusion, count(distinct e.experiment_id) from source.decisions o
join source.experiments e on e.experiment_id = o.candidate_experiment_id
join source.experiments c on c.experiment_id = $1
left join source.experiments b on b.experiment_id = $2
left join source.experiments theirs on theirs.experiment_id = o.baseline_experiment_id
where o.gate = $3 and o.decided_at < $4 and o.conclusion <> 'PASS' and e.experiment_id <> c.experiment_id
      and (e.snapshot_id, e.target_version) = (c.snapshot_id, c.target_version)
      and e.application_version is not distinct from c.application_version
      and theirs.target_version is not distinct from b.target_version
group by o.conclusion order by o.conclusion
"""

_SIDES = f"select {fields_of(_Experiment)} from experiments where experiment_id in ($1, $2)"

_TESTED = f"""
select concat_ws('@', metric, slice) as name, {fields_of(Tested).removeprefix("name, ")} from source.verdicts
where run_group = $1
"""
