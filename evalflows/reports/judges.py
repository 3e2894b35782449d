"""Judges at one look, and the report of one: its agreement with human labels, its versions, known-answer controls and
biases."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, get_args

from evalflows.analysis.figures import estimate, figure, percent, percent_estimate
from evalflows.specs import hints
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import base_metric, metric_of
from evalflows.store.queries.people_checks import people_checks
from evalflows.store.queries.two_judges import Subjects
from evalflows.store.records import DataType, from_json
from evalflows.store.sql import ask, ask_records, fields_of, records_of
from evalflows.store.store import Store

NAMES = {1.0: "yes", 0.0: "no"}
"""Names of 1 and 0 for yes/no labels."""

_REPORTS = """
select subject_id, passed, observed::varchar from checks
where batch_id = ? and subject_kind = 'judge' and name = 'people' order by check_id
"""

_CONTROLS = """
select passed, message, recorded_at from checks
where subject_kind = 'judge' and name = 'controls' and subject_id = $1 order by recorded_at desc limit 10
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeHealth:
    """One version of a judge with one model, over all that it judged; see the mart `judge_health`."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metrics: Sequence[str]
    kind: Literal["run", "pair"]
    n_experiments: int
    judged: int
    failed: int
    not_attempted: int
    failure_share: float | None
    controls_passed: bool | None
    controls_reason: str | None
    biases_found: int | None
    biases: Sequence[str] | None
    biases_reason: str | None
    mean_spread: float | None
    repeat_agreement: float | None
    n_repeated: int
    calls: int | None
    cost_usd: float | None
    unpriced: int
    latency_mean_s: float | None
    last_judged_at: datetime

    @property
    def cost_per_judgement(self) -> float | None:
        """In USD; None if a price is not known, or if nothing was judged."""
        made = self.judged + self.failed
        return self.cost_usd / made if self.cost_usd is not None and made else None


def judges_health(store: Store, evaluator: str | None = None) -> list[JudgeHealth]:
    """Return all versions of a judge, or of all judges, the last used first."""
    query = (
        f"select {fields_of(JudgeHealth)} from judge_health where $1::varchar is null or evaluator = $1 "
        "order by last_judged_at desc, evaluator, evaluator_version, judge_model"
    )
    return ask_records(store, JudgeHealth, query, [evaluator])


Need = Literal["rejected", "drifting", "not validated"]
"""Why a judge needs somebody's action, the most urgent first; not validated: though a gate has a rule on its metric."""

NEEDS: tuple[Need, ...] = get_args(Need)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJudge:
    """A judge in the list: its versions, the last used first, and what that one needs."""

    versions: Sequence[JudgeHealth]
    need: Need | None

    @property
    def newest(self) -> JudgeHealth:
        return self.versions[0]


def judges_by_need(store: Store, health: Sequence[JudgeHealth]) -> list[ListedJudge]:
    """Return judges, those that need action first, else the last used."""
    drifting, gated = ask(store, (_DRIFTING, []), (_GATED, []))
    people, in_gates = people_checks(store), {base_metric(metric_of(metric)) for (metric,) in gated}

    def need(one: JudgeHealth) -> Need | None:
        checks = [check for metric in one.metrics if (check := people.get((one.evaluator_version, metric)))]
        if one.controls_passed is False or any(not check.passed for check in checks):
            return "rejected"
        if (one.evaluator, one.evaluator_version) in drifting:
            return "drifting"
        is_open = not one.controls_passed and not checks and in_gates & {*one.metrics}
        return "not validated" if is_open else None

    listed = [
        ListedJudge(versions=versions, need=need(versions[0]))
        for versions in grouped((one.evaluator, one) for one in health).values()
    ]
    return sorted(listed, key=lambda one: NEEDS.index(one.need) if one.need else len(NEEDS))


_DRIFTING = """
select evaluator, evaluator_version from judge_drift
group by evaluator, evaluator_version, metric having arg_max(changed, checked_at) in ('judge', 'both')
"""

_GATED = "select distinct metric from gate_rules where is_newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """One judge of one metric, compared with human labels."""

    metric: str
    passed: bool | None  # whether it agrees with people better than chance; None if unknown
    observed: Mapping[str, Any]  # the figures of the check, see docs/guides/people.md

    @property
    def judge(self) -> str:
        model = self.observed["judge_model"]
        return f"{self.observed['evaluator']} ({model})" if model else str(self.observed["evaluator"])

    @property
    def lines(self) -> list[tuple[str, str, str]]:
        """Each figure's name, value, and interval or the reason why there is none."""
        observed, agreed = self.observed, self.observed.get("agreement") or {}
        rows = []
        if agreed:
            rows += [("agreement", _share(agreed["share"]), ""), ("Cohen's kappa", *figures_of(agreed, "kappa"))]
        rows.append(("Krippendorff's alpha", *figures_of(observed["alpha"], "alpha")))
        if observed["people_alpha"]:
            rows.append(("alpha among people", *figures_of(observed["people_alpha"], "alpha")))
        if observed["kind"] == "yes_no" and (table := observed.get("confusion")):
            for name, shares in (("recall of yes", table["found"]), ("precision of yes", table["right"])):
                rows.append((name, *percent_estimate(*(shares[0][field] for field in ("share", "low", "high")))))
        if error := observed.get("error"):
            rows.append(("bias (judge minus people)", *figures_of(error, "bias", signed=True)))
            rows.append(("variance of the error", figure(error["variance"], ""), ""))
            if observed["kind"] == "numbers":
                rows.append(
                    ("Spearman's correlation", figure(error["correlation"], ""), error["correlation_reason"] or "")
                )
        return rows

    @property
    def confusion(self) -> tuple[list[str], list[list[str]]] | None:
        """The confusion matrix as header and rows: people's label, counts of the judge's labels, and agreement."""
        table = self.observed.get("confusion")
        if not table:
            return None
        names = [self._label(label) for label in table["labels"]]
        header = ["people", *(f"judge: {name}" for name in names), "agreement"]
        rows = [
            [name, *map(str, counts), percent(share["share"], share["low"], share["high"])]
            for name, counts, share in zip(names, table["counts"], table["found"], strict=True)
        ]
        return header, rows

    @property
    def means(self) -> list[tuple[str, str, str, str]]:
        """The mean by the judge only, by the labels only, and prediction-powered, each with its basis."""
        observed = self.observed
        if "powered_mean" not in observed:
            return []
        what = f"{observed['candidate']} wins" if observed["candidate"] else "mean"
        split = f", without {observed['n_split']} evenly split" if observed.get("n_split") else ""
        single = [
            (f"{what}, judge only", observed["judge_mean"], f"{observed['n_judged']} judgements"),
            (f"{what}, labels only", observed["labels_mean"], f"{observed['labels_mean']['n']} labelled{split}"),
        ]
        rows = [(name, *self._mean(mean), basis) for name, mean, basis in single]
        if (why := observed["no_powered_mean"]) is None:
            powered = observed["powered_mean"]
            gain = (
                "" if powered["gain"] is None else f", as precise as {powered['gain'] * powered['n_labels']:.0f} labels"
            )
            both = f"{powered['n_labels']} labels and {powered['n_judged']} judgements{gain}"
            rows.append((f"{what}, prediction-powered", *self._mean(powered), both))
        else:
            rows.append((f"{what}, prediction-powered", "-", "", why))
        return rows

    @property
    def sentences(self) -> list[str]:
        """The report in sentences."""
        return [*self._agreement(), *self._rare_kind(), *self._bias(), *self._mean_in_words(), *self._warnings()]

    def _agreement(self) -> list[str]:
        alpha = self.observed["alpha"]
        if alpha["alpha"] is None:
            return [f"{self.judge}: agreement with people is unknown: {alpha['reason']}"]
        agreed = self.observed.get("agreement")
        share = "" if not agreed else f" on {agreed['share']:.0%} of the labelled items,"
        if self.passed is False:
            return [
                f"{self.judge} agrees with people{share} not significantly better than chance: do not rely on it, and "
                "gates and verdicts do not either"
            ]
        if self.passed is None:
            return [f"{self.judge} agrees with people{share} but significance is unknown: {alpha['reason']}"]
        sentence = f"{self.judge} agrees with people{share} significantly better than chance"
        among = self.observed["people_alpha"]
        if among and among["alpha"] is not None:
            less = "about as well as" if among["alpha"] <= alpha["alpha"] else "less well than"
            sentence += (
                f"; {less} people agree with each other (alpha {alpha['alpha']:.2f}, people {among['alpha']:.2f})"
            )
        return [sentence]

    def _rare_kind(self) -> list[str]:
        rare = self.observed.get("rare_kind")
        if rare is None or self.passed:
            return []
        observed, missing = self.observed, f"{rare['n_missing']} more {NAMES[rare['label']]}"
        sentence = f"people labelled {rare['n']} of {observed['n_labelled']} {NAMES[rare['label']]}, too few to tell"
        if rare["n_unlabelled"] < rare["n_more"]:
            left = f"the {rare['n_unlabelled']} answers without a label are too few for it"
            return [f"{sentence}: wanted {missing}; {left}, so label another experiment too"]
        hint = hints.label_next(observed["subject_id"], self.metric, observed["people_metric"], rare["n_more"])
        return [f"{sentence}: wanted {missing}, about as many as in {rare['n_more']} at random: {hint.code}"]

    def _bias(self) -> list[str]:
        error = self.observed.get("error")
        if not error or error["low"] is None or self.observed["kind"] == "pairs":
            return []
        amount = figure(abs(error["bias"]), "") if self.observed["kind"] == "numbers" else f"{abs(error['bias']):.0%}"
        if error["low"] > 0:
            return [f"it is too generous: {amount} above people on average"]
        if error["high"] < 0:
            return [f"it is too strict: {amount} below people on average"]
        return ["it shows no significant bias"]

    def _mean_in_words(self) -> list[str]:
        observed = self.observed
        if "powered_mean" not in observed or observed["no_powered_mean"] or observed["powered_mean"]["low"] is None:
            return []
        judge, powered = observed["judge_mean"], observed["powered_mean"]
        estimate = " ".join(text for text in self._mean(powered) if text)
        if judge["mean"] is None or powered["low"] <= judge["mean"] <= powered["high"]:
            return [
                f"estimated mean if people labelled everything: {estimate}; the judge's mean is within the interval"
            ]
        biased = " ".join(text for text in self._mean(judge) if text)
        return [f"estimated mean if people labelled everything: {estimate}; do not report the judge's {biased}"]

    def _warnings(self) -> list[str]:
        observed, warnings = self.observed, []
        if "powered_mean" in observed and (why := observed["no_powered_mean"] or observed["powered_mean"]["reason"]):
            warnings.append(f"no prediction-powered interval: {why}")
        if observed["n_left_out"]:
            warnings.append(f"{observed['n_left_out']} labels are left out: not from a random sample, or not judged")
        if observed.get("n_split"):
            warnings.append(f"people are evenly split on {observed['n_split']}, which are left out")
        if observed["drawn_unevenly"]:
            warnings.append(
                "bias and means weight each label by its sampling probability; agreement, kappa and alpha do not"
            )
        if observed["n_missing"]:
            warnings.append(f"{observed['n_missing']} judgements are missing")
        return warnings

    def _label(self, label: Any) -> str:
        kind, sides = self.observed["kind"], self.observed.get("sides")
        if kind == "pairs" and sides:
            return str({"left": sides[0], "right": sides[1]}.get(label, label))
        return NAMES.get(label, str(label)) if kind == "yes_no" else str(label)

    def _mean(self, mean: Mapping[str, Any]) -> tuple[str, str]:
        if self.observed["kind"] == "numbers":
            return estimate(mean["mean"], mean["low"], mean["high"], "")
        return percent_estimate(mean["mean"], mean["low"], mean["high"])


def judge_reports(store: Store, batch: str) -> list[JudgeReport]:
    """Return the reports of a batch of checks against human labels."""
    (rows,) = ask(store, (_REPORTS, [batch]))
    return [JudgeReport(metric=metric, passed=passed, observed=json.loads(figures)) for metric, passed, figures in rows]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def figures_of(estimated: Mapping[str, Any], name: str, *, signed: bool = False) -> tuple[str, str]:
    """Return a figure of a check, and its interval or why it has none."""
    value, interval = estimate(estimated[name], estimated["low"], estimated["high"], "", signed=signed, marks=(0,))
    return value, interval or f"no interval: {estimated['reason']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCheck:
    """A judge on known-answer controls, in one run group."""

    passed: bool | None
    message: str | None
    checked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBias:
    """A check of a judge for a bias, in one comparison."""

    comparison_id: str
    comparison: str
    metric: str
    bias: str
    passed: bool | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSubject:
    """An experiment, a comparison or a trace evaluation in which people labelled what the judge judged."""

    subject_id: str
    name: str
    subjects: Subjects
    metric: str
    people_metric: str
    evaluator_version: str
    judge_model: str | None
    n_labels: int
    n_disagreements: int

    @property
    def is_pairs(self) -> bool:
        return self.subjects == "pairs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A judgement, and the label of a person who disagrees."""

    example_id: str | None  # None of an item of production, as all of its texts
    repetition: int | None
    subject_id: str  # a run, of two the left one, or an item of production
    other_run_id: str | None
    judge_value: float | None
    judge_label: str | None
    comment: str | None
    people_value: float | None
    people_label: str | None
    labeller: str | None
    people_comment: str | None
    inputs: str | None  # JSON, like the answers
    reference_outputs: str | None
    outputs: str | None
    other_outputs: str | None


def judge_record(store: Store, evaluator: str) -> tuple[list[ControlCheck], list[FoundBias], list[LabelledSubject]]:
    """Return a judge's controls and biases, newest first, and what people labelled of it."""
    controls, biases, subjects = ask(store, (_CONTROLS, [evaluator]), (_BIASES, [evaluator]), (_LABELLED, [evaluator]))
    return (records_of(ControlCheck, controls), records_of(FoundBias, biases), records_of(LabelledSubject, subjects))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredRun:
    """What a version of a judge said of its anchors in one run, and whether it had changed."""

    run_id: str
    owner: str  # an experiment, a comparison or an evaluation's day
    is_experiment: bool
    metric: str
    evaluator_version: str
    began: datetime
    n: int
    error: float  # mean of the judge's score minus the known one
    standard_error: float | None
    agreement: float  # the share that is as known
    models: Sequence[str]
    fingerprints: Sequence[str]
    changed: str | None
    message: str | None

    @property
    def served(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the provider says has answered."""
        return tuple(self.models), tuple(self.fingerprints)


def anchored_runs(store: Store, evaluator: str) -> list[AnchoredRun]:
    """Return the newest runs in which a judge judged anchors, at most 100, oldest first."""
    return ask_records(store, AnchoredRun, _ANCHORED, [evaluator])


def current_report(store: Store, labelled: LabelledSubject) -> JudgeReport:
    """Return the report of one version of a judge in one experiment, comparison or trace evaluation, from the labels
    of now.

    Raise InputError if one side has numbers and the other labels.
    """
    from evalflows.analysis.labels import label_check, people_batch  # late: pandas is slow to import
    from evalflows.store.queries.labels import judged_in

    names = labelled.subject_id, labelled.metric, labelled.people_metric
    judged = judged_in(store, names[0], labelled.subjects, *names[1:])
    check = label_check(people_batch(*names), judged, labelled.evaluator_version, confidence_level=0.95)
    return JudgeReport(metric=check.subject_id, passed=check.passed, observed=from_json(check.observed))


def disagreements(store: Store, subject: LabelledSubject, *, page: int, in_page: int) -> list[Disagreement]:
    """Return a page of the labels that disagree with the judge, the largest errors first; `page` counts from 1."""
    values = [subject.subject_id, subject.metric, subject.people_metric, subject.evaluator_version]
    owner = "evaluation_id" if subject.subjects == "items" else "experiment_id"
    return ask_records(
        store, Disagreement, _DISAGREEMENTS.format(owner=owner), [*values, in_page, in_page * (page - 1)]
    )


_ANCHORED = """
with runs as (
    select run_id, any_value(experiment_id) as owner, metric, evaluator_version, min(judged_at) as began,
           count(*) as n, avg(value - known) as error, stddev_samp(value - known) / sqrt(count(*)) as standard_error,
           avg((value = known)::int) as agreement, list_sort(list(distinct judge_model)) as models
    from sentinels where evaluator = $1 and status = 'scored' and value is not null
    group by run_id, metric, evaluator_version order by began desc limit 100
), served as (
    select experiment_id, list_sort(list(distinct system_fingerprint)) as fingerprints from calls
    where evaluator = $1 and system_fingerprint is not null group by experiment_id
)
select r.run_id, r.owner, e.experiment_id is not null, r.metric, r.evaluator_version, r.began, r.n, r.error,
       r.standard_error, r.agreement, coalesce(r.models, []), coalesce(s.fingerprints, []), d.changed, d.message
from runs r
left join served s on s.experiment_id = r.owner
left join experiments e on e.experiment_id = r.owner
left join judge_drift d
    on d.run_id = r.run_id and d.metric = r.metric and d.evaluator_version = r.evaluator_version
order by r.began
"""

_BIASES = """
select b.comparison_id, b.comparison, b.metric, b.bias, b.passed, b.message
from judge_biases b
join (select distinct comparison_id, metric from comparisons where evaluator = $1) c using (comparison_id, metric)
order by b.comparison_id desc, b.metric, b.bias limit 40
"""

_LABELLED = """
with named as (
    select experiment_id as subject, name, started_at from experiments
    union all select comparison_id, name, started_at from comparison_sets
    union all select evaluation_id, arg_max(name, started_at), max(started_at) from watermarks group by evaluation_id
), given as (
    select coalesce(evaluation_id, experiment_id) as subject, * from judge_labels
    where evaluator = $1 and agrees is not null
)
select g.subject, coalesce(n.name, g.subject) as name,
       case g.kind when 'run' then 'answers' when 'pair' then 'pairs' else 'items' end as subjects, g.metric,
       g.people_metric, g.evaluator_version, max(g.judge_model), count(*) as n, count(*) filter (not g.agrees)
from given g left join named n using (subject)
group by all order by max(n.started_at) desc nulls last, n desc, g.metric, g.people_metric, 6
"""

_DISAGREEMENTS = """
with said as (
    select * from judge_labels
    where {owner} = $1 and metric = $2 and people_metric = $3 and evaluator_version = $4 and not agrees
    order by abs(error) desc nulls last, example_id, repetition, label_id limit $5 offset $6
), owners as (
    select experiment_id, snapshot_id from experiments
    where experiment_id = $1
       or experiment_id in (select unnest(experiments) from comparison_sets where comparison_id = $1)
), answers as (
    select run_id, outputs from outputs where experiment_id in (select experiment_id from owners)
), asked as (
    select example_id, any_value(inputs) as inputs, any_value(reference_outputs) as reference_outputs from examples
    where snapshot_id in (select snapshot_id from owners) and example_id in (select example_id from said)
    group by example_id
)
select said.example_id, said.repetition, said.subject_id, said.other_run_id, said.value, said.label, said.comment,
       said.people_value, said.people_label, said.labeller, said.people_comment, x.inputs, x.reference_outputs,
       o.outputs, r.outputs
from said
left join asked x using (example_id)
left join answers o on o.run_id = said.run_id
left join answers r on r.run_id = said.other_run_id
order by abs(said.error) desc nulls last, said.example_id, said.repetition, said.label_id
"""


def label_text(value: float | None, label: str | None, data_type: DataType | None) -> str:
    """Return a label as people gave it: yes or no, a number, a category, or of two answers the better side."""
    if label is not None:
        return label
    if value is not None and data_type == "BOOLEAN":
        return "yes" if value == 1 else "no"
    return figure(value, "", digits=None if value is None or value != int(value) else 0)
