"""What got worse, and since when: gates that failed or are open, and metrics of the newest run of each system that
fell."""

from collections.abc import Sequence
from datetime import datetime

from evalflows.analysis.figures import estimate_text
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES, TRIAL
from evalflows.store.described import deciding_rules, rule_outcomes
from evalflows.store.records import DecisionConclusion, Json
from evalflows.store.small_tables import small_tables
from evalflows.store.sql import records_of
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True)
class GateFall:
    """A gate whose newest decision is FAIL or NOT ENOUGH EVIDENCE."""

    experiment_id: str
    baseline_id: str | None
    decision_id: str
    gate: str
    conclusion: DecisionConclusion
    summary: str  # the rules that decided
    reasons: Json  # all rules
    since: datetime  # the first of its decisions in a row with this conclusion


@dataclass(frozen=True, slots=True)
class MetricFall:
    """A metric of the newest run of a system that is worse than the baseline; or, where no verdict says that, than the
    run before, if their intervals do not overlap."""

    experiment_id: str
    baseline_id: str
    metric: str
    difference: float
    low: float | None  # None if it is not tested
    high: float | None
    since: datetime  # the first of its runs in a row that fell

    @property
    def text(self) -> str:
        changed = estimate_text(self.difference, self.low, self.high, self.metric, signed=True)
        return f"{self.metric} {changed}{' (not tested)' if self.low is None else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallen:
    """An experiment with what failed, is open or fell, and what it is compared with."""

    experiment_id: str
    baseline_id: str | None
    name: str
    baseline: str | None
    gates: Sequence[GateFall]  # FAIL first
    metrics: Sequence[MetricFall]

    @property
    def is_open(self) -> bool:
        """Whether nothing is worse for sure: its gates lack evidence."""
        return not self.metrics and all(gate.conclusion != "FAIL" for gate in self.gates)

    @property
    def text(self) -> str:
        """The rules that decided, as the decisions have them, and the metrics that are worse besides, in words."""
        decided = {
            rule.metric
            for gate in self.gates
            for rule in deciding_rules(rule_outcomes(gate.reasons), gate.conclusion)
            if rule.is_difference
        }
        others = ", ".join(metric.text for metric in self.metrics if metric.metric not in decided)
        rules = [f"{gate.gate}: {gate.summary}" if self.gates[1:] else gate.summary for gate in self.gates]
        return "; ".join([*rules, *([f"also {others}" if rules else others] if others else [])])

    @property
    def since(self) -> datetime:
        """Since when the worst of it holds."""
        failed = [gate.since for gate in self.gates if gate.conclusion == "FAIL"]
        return min([*failed, *(metric.since for metric in self.metrics)] or [gate.since for gate in self.gates])


def fallen(store: Store) -> list[Fallen]:
    """Return what is worse now, what is only open last, and the newest first; without trials."""
    with small_tables(store) as ask:
        gates = records_of(GateFall, ask(_GATES, [TRIAL]))
        runs = [newest for (newest,) in ask(_NEWEST_TWO, [TRIAL])]
        worse = [[*system] for system in ask(_WORSE, [[run for run, *_ in runs]])]
        tested = ask(_METRICS, [TRIAL, worse]) if worse else []  # most often none: windows of all runs are slow
        repeated = [two for two in runs if len(two) == 2]
        untested = ask(_UNTESTED, [[run for run, _ in repeated], [before for _, before in repeated], [*MEASURES]])
        metrics = records_of(MetricFall, tested + untested)
        found: list[GateFall | MetricFall] = [*gates, *metrics]
        ids = {identity for one in found for identity in (one.experiment_id, one.baseline_id) if identity}
        names = dict(ask(_NAMES, [sorted(ids)]))
    by_pair = grouped(((one.experiment_id, one.baseline_id), one) for one in found)
    by_experiment = []
    for (experiment, baseline), some in by_pair.items():
        name, other = names.get(experiment, experiment), names.get(baseline) if baseline else None
        by_experiment.append(
            Fallen(
                experiment_id=experiment,
                baseline_id=baseline,
                name=name,
                baseline="an earlier run" if other == name else other,
                gates=[one for one in some if isinstance(one, GateFall)],
                metrics=[one for one in some if isinstance(one, MetricFall)],
            )
        )
    return sorted(by_experiment, key=lambda one: (one.is_open, -one.since.timestamp()))


_NAMES = """
select experiment_id, concat_ws(' ', name, application_version) from staging.experiments
where is_one_of(experiment_id, $1)
"""

_GATES = """
with decided as (
    select d.*, e.spec ->> 'name' as spec,
           row_number() over (partition by d.gate, e.spec ->> 'name'
                              order by d.confirmed_at desc, d.decision_id desc) as back
    from gate_decisions d join source.experiments e on e.experiment_id = d.candidate_experiment_id
    where not list_contains(e.tags, $1)
), now as (select * from decided where back = 1 and conclusion <> 'PASS')
select n.candidate_experiment_id, n.baseline_experiment_id, n.decision_id, n.gate, n.conclusion, n.summary, n.reasons,
       coalesce((
           select min(d.decided_at) from decided d
           where d.gate = n.gate and d.spec = n.spec and d.back < coalesce((
               select min(o.back) from decided o
               where o.gate = n.gate and o.spec = n.spec and o.conclusion <> n.conclusion
           ), 1000000)
       ), n.decided_at)
from now n order by n.conclusion <> 'FAIL', n.gate
"""

_COUNTED = "state = 'completed' and not list_contains(tags, $1)"

_NEWEST_TWO = f"""
select arg_max(experiment_id, (started_at, experiment_id), 2)
from source.experiments where {_COUNTED} group by name, target
"""

_WORSE = """
select distinct e.name, e.target
from source.experiments e join source.verdicts v on v.candidate_experiment_id = e.experiment_id
where e.experiment_id in (select unnest($1)) and v.slice is null and v.conclusion = 'worse'
"""

_METRICS = f"""
with runs as (
    select experiment_id, name, target, started_at,
           row_number() over (partition by name, target order by started_at desc, experiment_id desc) as back
    from source.experiments where {_COUNTED}
), streaks as (
    select r.name, r.target, r.started_at, r.back, v.*,
           count(*) filter (v.conclusion <> 'worse') over (
               partition by r.name, r.target, v.metric order by r.back
           ) as others
    from runs r join current_verdicts v on v.candidate_experiment_id = r.experiment_id
    where v.slice = 'all' and v.is_shown and list_contains($2, [r.name, r.target])
)
select arg_min(candidate_experiment_id, back), arg_min(baseline_experiment_id, back), metric, arg_min(difference, back),
       arg_min(ci_low, back), arg_min(ci_high, back), min(started_at)
from streaks where others = 0 group by name, target, metric having min(back) = 1 order by metric
"""

_UNTESTED = """
with runs as (
    select unnest($1) as experiment_id, unnest($2) as before
), apart as (
    select r.*, n.metric, n.mean - o.mean as difference
    from runs r join source.estimates n using (experiment_id)
    join source.estimates o
        on o.experiment_id = r.before and o.metric = n.metric and o.evaluator_version = n.evaluator_version
    where n.slice is null and o.slice is null and not list_contains($3, n.metric)
      and (n.ci_high < o.ci_low or n.ci_low > o.ci_high)
)
select a.experiment_id, a.before, a.metric, a.difference, null, null, e.started_at
from apart a join source.experiments e using (experiment_id)
join source.experiments b on b.experiment_id = a.before and b.snapshot_id = e.snapshot_id
where higher_is_better(e.spec, a.metric) = (a.difference < 0)
  and not exists (from source.verdicts v where v.candidate_experiment_id = a.experiment_id and v.metric = a.metric)
order by a.metric
"""
