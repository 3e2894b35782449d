"""Judges whose scores decide nothing: known-answer controls or people's labels do not validate them, sharing a call
changes their scores, or their fallback judged most items. Gates, verdicts, tables and pages all ask here.

It is light: commands that list load it without pydantic, pandas or scipy.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import base_metric
from evalflows.store.described import from_described, panels_of
from evalflows.store.queries.people_checks import people_checks
from evalflows.store.records import (
    ComparisonSetRow,
    ExperimentRow,
    Reason,
    ReasonCode,
    bundles_batch,
    controls_batch,
    from_json,
)
from evalflows.store.sql import ask
from evalflows.store.store import Store

MOSTLY = 0.5
"""The share of the scores from which a fallback has judged instead of its judge."""

MORE_THAN_A_FEW = 0.05
"""The share of the scores from which a fallback or an earlier tier is mentioned."""

FALLBACK = "fallback "
"""How `decided_by` begins for scores of a fallback."""

_CONTROLS = """
select batch_id, subject_id, passed, message, reason_code from source.checks
where batch_id in ({}) and subject_kind = 'judge' and name in ('controls', 'bundle') and passed is distinct from true
      and not (name = 'bundle' and reason_code is null)
order by name desc
"""

_METRICS = """
select e.experiment_id, any_value(e.started_at), list((t.metric, t.evaluator_version)), any_value(e.evaluators),
       any_value(e.spec)
from experiments e join estimates t using (experiment_id)
where e.experiment_id in ({}) and t.slice is null group by e.experiment_id
"""

_MARKS = ('"fallback":{', '"tiers":[{')
"""What the JSON of a spec contains that has a fallback or tiers."""

_PANEL = '"panel":["'
"""What it contains that has a panel."""

_NEWEST = 20
"""The newest experiments whose panels the page of judges describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Why a judge's scores of a metric decide nothing."""

    judge: str
    reason: Reason
    batch_id: str | None = None  # of the checks that say so

    @property
    def message(self) -> str:
        return self.reason.text

    @property
    def text(self) -> str:
        """A few words, for a badge."""
        return _WORDS[self.reason.code]


_WORDS: Mapping[ReasonCode, str] = {
    "judge_failed_validation": "judge failed validation",
    "judge_not_validated": "judge not validated",
    "judge_rejected_by_people": "judge rejected by people's labels",
    "judge_drifted": "judge has drifted",
    "judged_by_fallback": "judged by the fallback",
    "bundle_disagrees": "judges differently in its bundle",
    "bundle_not_checked": "bundle not checked",
}


class OnceJudged(NamedTuple):
    """Scores of a judge that is another today."""

    before: datetime | None  # those of experiments that started earlier; None: all
    exclusion: Exclusion


class JudgedMetric(NamedTuple):
    """A metric, and the evaluator that gave it."""

    metric: str
    evaluator: str
    version: str


def exclusions(
    judged: Iterable[JudgedMetric],
    controls: Mapping[str, Exclusion],
    versions: Mapping[tuple[str, str], Exclusion],
    fallback: Mapping[str, Exclusion],
) -> dict[str, Exclusion]:
    """Return the metrics of one experiment or comparison that decide nothing.

    `controls` are its failed judges by name, `versions` those by version and metric, and `fallback` has its metrics.
    Composites are left to the caller.
    """
    found = {
        given.metric: controls.get(given.evaluator)
        or versions.get((given.version, base_metric(given.metric)))
        or fallback.get(base_metric(given.metric))
        for given in judged
    }
    return {metric: exclusion for metric, exclusion in found.items() if exclusion}


def excluded_metrics(
    store: Store,
    groups: Mapping[str, str],
    once_judged: Mapping[tuple[str, str], OnceJudged] = MappingProxyType({}),
) -> dict[tuple[str, str], Exclusion]:
    """Return the metrics of experiments that decide nothing, and composites of them; `groups` are run groups by id.

    `once_judged` are scores that do not count either, by version and metric.
    """
    controls, people = by_controls(store, {*groups.values()}), by_people(store)
    fallback = by_fallback(store, specs_with_steps(store, [*groups]))
    are_any = people or once_judged
    concerned = [owner for owner, group in groups.items() if are_any or controls[group] or owner in fallback]
    if not concerned:
        return {}
    from evalflows.specs.metrics import CompositeSpec  # late: pydantic is slow to import

    found: dict[tuple[str, str], Exclusion] = {}
    for identity, started_at, metrics, evaluators, spec in _rows(store, _METRICS, concerned):
        versions = [(judge.name, judge.version) for judge in from_described(evaluators)]
        judged = [
            JudgedMetric(metric, _evaluator(metric, [name for name, of in versions if of == version]), version)
            for metric, version in metrics
        ]
        outdated = {
            key: once.exclusion for key, once in once_judged.items() if once.before is None or started_at < once.before
        }
        of_metrics = exclusions(judged, controls[groups[identity]], outdated | people, fallback.get(identity, {}))
        for composite in map(CompositeSpec.model_validate, from_json(spec).get("composites") or ()):
            excluded = {base_metric(metric): exclusion for metric, exclusion in of_metrics.items()}
            if (part := composite.undone_by(excluded)) is not None:
                of_metrics[composite.name] = excluded[part]
        found |= {(identity, metric): exclusion for metric, exclusion in of_metrics.items()}
    return found


def _evaluator(metric: str, names: Sequence[str]) -> str:
    """Return which of the evaluators with the version of a metric gave it: that of its name, if there is one."""
    base = base_metric(metric)
    return base if base in names else next(iter(names), "")


def by_controls(store: Store, groups: Collection[str]) -> dict[str, dict[str, Exclusion]]:
    """Return the judges of run groups that known-answer controls do not validate, or that judge differently when they
    share a call, by group and judge."""
    found: dict[str, dict[str, Exclusion]] = {group: {} for group in groups}
    batches = {batch: group for group in groups for batch in (controls_batch(group), bundles_batch(group))}
    for batch, judge, passed, message, stored in _rows(store, _CONTROLS, batches):
        code: ReasonCode = stored or ("judge_not_validated" if passed is None else "judge_failed_validation")
        reason = Reason(code, message or "not checked")
        found[batches[batch]][judge] = Exclusion(judge=judge, reason=reason, batch_id=batch)
    return found


def by_people(store: Store) -> dict[tuple[str, str], Exclusion]:
    """Return the judges that people's labels reject, by version and metric."""
    return {
        key: Exclusion(
            judge=check.judge, reason=Reason("judge_rejected_by_people", check.rejection), batch_id=check.batch_id
        )
        for key, check in people_checks(store).items()
        if check.rejection is not None
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """How many scores of a metric a fallback, or a tier other than the last, has given."""

    owner: str  # experiment or comparison
    metric: str
    decided_by: str  # as in the rows: `fallback NAME`, or the tier's name
    n: int
    n_scored: int
    counts: bool  # whether the spec lets the fallback count like the judge

    @property
    def is_fallback(self) -> bool:
        return self.decided_by.startswith(FALLBACK)

    @property
    def text(self) -> str:
        who = f"the {self.decided_by}" if self.is_fallback else f"the earlier tier {self.decided_by}"
        return f"{self.metric}: {who} judged {self.n} of {self.n_scored}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedPanel:
    """Who of a panel's judges decided its scores in an experiment."""

    owner: str
    metric: str
    counted: Sequence[str]  # names of judges
    left_out: Mapping[str, str]  # with the reason
    note: str | None  # why all count equally, where weights are wanted

    @property
    def is_whole(self) -> bool:
        """Whether all judges counted, and as the spec wants it."""
        return not self.left_out and self.note is None

    @property
    def metrics_left_out(self) -> set[str]:
        return {name for judge in self.left_out for name in (judge, f"{self.metric}/{judge}")}

    @property
    def text(self) -> str:
        return self._said({judge: why.partition(":")[0] for judge, why in self.left_out.items()})

    @property
    def whole_text(self) -> str:
        """The same with the whole reasons, which elsewhere are said of the judges' own metrics."""
        return self._said(self.left_out)

    def _said(self, left_out: Mapping[str, str]) -> str:
        by = " and ".join([", ".join(self.counted[:-1]), self.counted[-1]] if self.counted[1:] else self.counted)
        is_undone = {*self.counted} <= left_out.keys()
        said = [f"{self.metric}: judged by {by}{', none of whom decides anything' if is_undone else ''}"]
        said += [self.note] if self.note else []
        what = "cannot count" if is_undone else "was left out"
        return "; ".join([*said, *(f"{judge} {what}: {why}" for judge, why in left_out.items())])


def panels_in(store: Store, specs: Mapping[str, str]) -> list[SeatedPanel]:
    """Return who decided in the panels of experiments; `specs` are theirs, as JSON, by id.

    No score is read if none has a panel.
    """
    names = {(owner, panel) for owner, text in specs.items() if _PANEL in text for panel in panels_of(text)}
    return [
        SeatedPanel(
            owner=owner,
            metric=metric,
            counted=counted.split(", "),
            left_out=about["left_out"],
            note=about.get("note"),
        )
        for owner, metric, counted, metadata in _rows(store, _SEATED, {owner for owner, _ in names})
        if (owner, metric) in names and (about := from_json(metadata))
    ]


def newest_panels(store: Store) -> list[SeatedPanel]:
    """Return who decided in the panels of the newest experiments that have some, the newest first."""
    specs = dict(ask(store, (_WITH_PANELS, [_PANEL, _NEWEST]))[0])
    order = [*specs]
    return sorted(panels_in(store, specs), key=lambda panel: order.index(panel.owner))


def specs_with_steps(store: Store, owners: Collection[str]) -> dict[str, str]:
    """Return the specs, as JSON, of those experiments and comparisons that have a fallback, tiers or a panel, by id."""
    return dict(_rows(store, _SPECS, sorted(owners)))


def stepped_in(store: Store, specs: Mapping[str, str]) -> list[Stepped]:
    """Return the fallbacks and earlier tiers that gave more than a few scores of experiments or comparisons.

    `specs` are theirs, as JSON, by id. No score is read if none has a fallback or tiers.
    """
    specs = {owner: text for owner, text in specs.items() if any(mark in text for mark in _MARKS)}
    if not specs:
        return []
    from evalflows.specs.comparison import PairJudgeSpec  # late: pydantic is slow to import
    from evalflows.specs.evaluator import EvaluatorSpec, JudgeSpec

    named: dict[tuple[str, str], JudgeSpec] = {}
    for owner, text in specs.items():
        for given in from_json(text)["evaluators"]:
            spec = (PairJudgeSpec if "compares" in given else EvaluatorSpec).model_validate(given)
            if spec.fallback or spec.tiers:
                named[owner, spec.metric] = spec
    found = []
    for owner, metric, evaluator, decided_by, n, n_scored in _rows(store, _DECIDED_BY, {owner for owner, _ in named}):
        judge = named.get((owner, evaluator))
        is_last = judge is not None and bool(judge.tiers) and judge.tiers[-1].metric == decided_by
        if judge is not None and not is_last and n > MORE_THAN_A_FEW * n_scored:
            counts = judge.fallback_counts
            found.append(
                Stepped(owner=owner, metric=metric, decided_by=decided_by, n=n, n_scored=n_scored, counts=counts)
            )
    return found


def exclusions_in(
    store: Store, row: ExperimentRow | ComparisonSetRow, evaluators: Mapping[str, str]
) -> dict[str, Exclusion]:
    """Return the metrics of an experiment or a comparison that decide nothing; `evaluators` gave them."""
    if isinstance(row, ComparisonSetRow):
        owner = group = row.comparison_id
    else:
        owner, group = row.experiment_id, row.run_group
    versions = {judge.name: judge.version for judge in from_described(row.evaluators)}
    judged = [JudgedMetric(metric, name, versions.get(name, "")) for metric, name in evaluators.items()]
    fallback = by_fallback(store, {owner: row.spec}).get(owner, {})
    return exclusions(judged, by_controls(store, [group])[group], by_people(store), fallback)


def by_fallback(store: Store, specs: Mapping[str, str]) -> dict[str, dict[str, Exclusion]]:
    """Return the metrics that were judged mostly by a fallback that does not count, by owner and metric."""
    found: dict[str, dict[str, Exclusion]] = {}
    for stepped in stepped_in(store, specs):
        if stepped.is_fallback and not stepped.counts and stepped.n > MOSTLY * stepped.n_scored:
            text = f"the {stepped.decided_by} judged {stepped.n} of {stepped.n_scored}, since the judge was down"
            reason = Reason("judged_by_fallback", f"{text} (fallback_counts: true accepts that)")
            found.setdefault(stepped.owner, {})[stepped.metric] = Exclusion(judge=stepped.metric, reason=reason)
    return found


def _rows(store: Store, query: str, owners: Collection[str]) -> list[tuple[Any, ...]]:
    """Ask about some owners by their ids, which DuckDB then finds by the names of the files."""
    if not owners:
        return []
    places = ", ".join(f"${index}" for index in range(1, len(owners) + 1))
    with store.reading(only={"experiment_id": owners, "comparison_id": owners}):
        return ask(store, (query.replace("{}", places), [*owners]))[0]


_SPECS = f"""
select owner, spec from (
    select experiment_id as owner, spec from source.experiments where experiment_id in ({{}})
    union all select comparison_id, spec from source.comparison_sets where comparison_id in ({{}})
) where {" or ".join(f"contains(spec, '{mark}')" for mark in (*_MARKS, _PANEL))}
"""

_SEATED = """
select experiment_id, metric, any_value(judge_model), any_value(metadata::varchar) from judgements
where experiment_id in ({}) and subject_kind = 'run' and metric = evaluator and calls = 0
      and contains(metadata::varchar, '"left_out":')
group by all
order by experiment_id, metric
"""

_WITH_PANELS = """
select experiment_id, spec::varchar from experiments where contains(spec::varchar, $1) order by started_at desc limit $2
"""

_DECIDED_BY = """
select owner, metric, evaluator, decided_by, n, sum(n) over (partition by owner, metric, evaluator)::bigint from (
    select experiment_id as owner, metric, evaluator, decided_by, count(*) as n from judgements
    where experiment_id in ({}) and subject_kind in ('run', 'pair') and status = 'scored'
          and decided_by is distinct from 'failed_output' group by all
) qualify decided_by is not null order by owner, metric, n desc, decided_by
"""
