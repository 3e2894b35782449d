"""Gate decisions and judges: their lists, one decision with its rules against their bounds, and one judge with its
controls and its agreement with people.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from evalflows.analysis.figures import estimate
from evalflows.analysis.gates import Kind, Outcome, Rule
from evalflows.analysis.labels import judge_standings
from evalflows.dashboard.charts import domain
from evalflows.dashboard.rendering import Page, Query, Site, render, steady
from evalflows.reports.candidates import CandidatesOfGate, candidates_of_gates
from evalflows.reports.decision_limits import with_limits
from evalflows.reports.decisions import (
    Decision,
    DecisionChoice,
    decisions_beside,
    decisions_on,
    explained,
    find_decision,
    gate_names,
    listed_decisions,
    with_manifests,
)
from evalflows.reports.judges import (
    Disagreement,
    JudgeHealth,
    JudgeReport,
    LabelledSubject,
    current_report,
    disagreements,
    judge_record,
    judges_health,
)
from evalflows.specs.errors import InputError, NotFoundError, metric_of
from evalflows.store.queries.lookup import approvals
from evalflows.store.records import (
    DecisionConclusion,
)
from evalflows.store.sql import ask
from evalflows.store.store import Store

COLOURS = {"met": "better", "broken": "worse", "open": ""}

Scale = tuple[float, float]


@steady
def decision_page(site: Site, query: Query) -> Page:
    """One decision. Its address may also name a gate or a candidate: the newest decision counts."""
    found = find_decision(site.store, query.wanted("id"))
    (decision,) = with_manifests(site.store, with_limits(site.store, [found]))
    rules = stored_rules(site.store, decision)
    candidate = decision.candidate_experiment_id
    approved = approvals(site.store, [*filter(None, [decision.baseline_experiment_id, candidate])])
    body = render(
        "decision.html",
        site,
        decision=decision,
        rules=rules,
        scales=_scales(rules),
        colours=COLOURS,
        figures_of=figures_of,
        threshold_of=threshold_of,
        others=[one for one in decisions_on(site.store, candidate) if one.decision_id != decision.decision_id],
        approvals=approved,
        compared=_compared(site, decision),
        candidates=_candidates(site.store, decision),
        sections=list(explained(site.store, decision)),
    )
    title = f"{decision.title[0].upper()}{decision.title[1:]}"
    summary = (
        None if site.links.page() else render("decision_summary.html", site, decision=decision, approvals=approved)
    )
    reported = decision.decision_id
    return Page(title=title, section="decisions", body=body, is_shared=True, reported=reported, summary=summary)


def _candidates(store: Store, decision: Decision) -> CandidatesOfGate | None:
    """All candidates of the decision's gate in its run, if there are several against its baseline."""
    found = candidates_of_gates(store, decisions_beside(store, decision))
    several = [one for one in found if isinstance(one, CandidatesOfGate)]
    baseline = decision.baseline_experiment_id
    return next((one for one in several if one.decisions[0].baseline_experiment_id == baseline), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRule:
    """One rule of a decision. All figures are in the metric's own direction."""

    kind: Kind
    metric: str
    outcome: Outcome
    text: str
    is_difference: bool  # from the baseline; else the figures are of the candidate's mean
    higher_is_better: bool
    threshold: float  # where the estimate must lie above, or below if less is better
    value: float | None
    low: float | None
    high: float | None
    worst_case_low: float | None  # with missing values at either extreme; None if it is not known
    worst_case_high: float | None
    n: int | None
    n_missing: int | None
    p_below: float | None
    p_adjusted: float | None

    @property
    def has_worst_case(self) -> bool:
        """Whether missing values widen the interval."""
        worst, plain = (self.worst_case_low, self.worst_case_high), (self.low, self.high)
        return None not in worst and worst != plain and bool(self.n_missing)


def stored_rules(store: Store, decision: Decision) -> list[StoredRule]:
    """Return the rules of a decision, in its order."""
    metrics = [metric_of(rule["metric"]) for rule in decision.rules]
    directions, verdicts = ask(
        store, (_DIRECTIONS, [decision.candidate_experiment_id, metrics]), (_WORST_CASES, [decision.decision_id])
    )
    higher = dict(directions)
    worst = {(rule, metric): (low, high) for rule, metric, low, high in verdicts}
    return [
        _stored(rule, higher.get(metric_of(rule["metric"]), True), worst.get((rule["rule"], rule["metric"])))
        for rule in decision.rules
    ]


def _stored(given: Mapping[str, Any], higher_is_better: bool, worst_case: Sequence[float | None] | None) -> StoredRule:
    rule = Rule(kind=given["rule"], metric=given["metric"], bound=given["bound"])
    threshold = rule.threshold(higher_is_better=higher_is_better)
    low, high = worst_case if worst_case and rule.is_difference else (None, None)
    # decisions of early versions lack some
    fields = ("value", "low", "high", "n", "n_missing", "p_below", "p_adjusted")
    return StoredRule(
        kind=rule.kind,
        metric=rule.metric,
        outcome=given["outcome"],
        text=given["text"],
        is_difference=rule.is_difference,
        higher_is_better=higher_is_better,
        threshold=threshold if higher_is_better else -threshold,
        worst_case_low=low,
        worst_case_high=high,
        **{name: given.get(name) for name in fields},
    )


_DIRECTIONS = """
select metric, higher_is_better(e.spec, metric)
from experiments e, (select unnest($2::varchar[]) as metric) m where e.experiment_id = $1
"""


_WORST_CASES = "select rule, metric, worst_case_ci_low, worst_case_ci_high from gate_rules where decision_id = $1"


def figures_of(rule: StoredRule) -> str:
    """Return a rule's estimate with its interval, as text."""
    marks = (rule.threshold,)
    texts = estimate(rule.value, rule.low, rule.high, rule.metric, signed=rule.is_difference, marks=marks)
    return " ".join(filter(None, texts))


def threshold_of(rule: StoredRule) -> str:
    """Return where the estimate must lie, as text; a plain threshold may also be met exactly."""
    sides = ("at least", "at most") if rule.kind == "threshold" else ("above", "below")
    bound = f"{rule.threshold:+g}" if rule.is_difference and rule.threshold else f"{rule.threshold or 0:g}"
    return f"{sides[not rule.higher_is_better]} {bound}"


def _scales(rules: Sequence[StoredRule]) -> Mapping[tuple[str, bool], Scale]:
    """Return the scale of each metric's differences, and of its means: rules on one metric share it."""
    ends: dict[tuple[str, bool], list[float | None]] = {}
    for rule in rules:
        ends.setdefault((rule.metric, rule.is_difference), []).extend(
            (rule.value, rule.low, rule.high, rule.worst_case_low, rule.worst_case_high, rule.threshold)
        )
    return {metric: domain([*values, 0.0 if metric[1] else None]) for metric, values in ends.items()}


def _compared(site: Site, decision: Decision) -> str | None:
    if decision.baseline_experiment_id is None:
        return None
    return site.links.compare(decision.baseline_experiment_id, decision.candidate_experiment_id)


DECISIONS_IN_PAGE = 50

CONCLUSIONS: Sequence[DecisionConclusion] = get_args(DecisionConclusion)


@steady
def decisions_page(site: Site, query: Query) -> Page:
    """The list of decisions."""
    gates, number = gate_names(site.store), query.number("page")
    conclusion = query.choice("conclusion", CONCLUSIONS, "PASS") if query.text("conclusion") else None
    choice = DecisionChoice(gate=query.text("gate"), conclusion=conclusion, text=query.text("q"))
    decisions, total = listed_decisions(site.store, choice, page=number, in_page=DECISIONS_IN_PAGE)
    body = render(
        "decisions.html",
        site,
        decisions=decisions,
        total=total,
        gates=gates,
        conclusions=CONCLUSIONS,
        choice=choice,
        approvals=approvals(site.store),
        number=number,
        last=-(-total // DECISIONS_IN_PAGE),
        address=lambda page: site.links.page(
            "decisions", gate=choice.gate, conclusion=choice.conclusion, q=choice.text, page=page
        ),
    )
    return Page(title="Decisions", section="decisions", body=body)


LABELS_IN_PAGE = 10

Plot = tuple[float | None, float | None, float | None, tuple[float, float], float | None]
"""A value with the ends of its interval, its scale, and a mark."""


@steady
def judge_page(site: Site, query: Query) -> Page:
    """One judge, and its agreement with people in one experiment or comparison."""
    evaluator, number = query.wanted("evaluator"), query.number("page")
    versions = judges_health(site.store, evaluator)
    controls, biases, subjects = judge_record(site.store, evaluator)
    if not any((versions, controls, biases, subjects)):
        root = site.store.layout.root
        raise NotFoundError(f"judge {evaluator!r}: not in {root}, wanted one that has judged something")
    subject = _chosen(subjects, query)
    report, problem = _report(site, subject)
    body = render(
        "judge.html",
        site,
        evaluator=evaluator,
        versions=versions,
        standings=judge_standings(site.store, evaluator) if subjects else [],
        controls=controls,
        biases=biases,
        subjects=subjects,
        subject=subject,
        report=report,
        problem=problem,
        plots=_plots(report) if report else {},
        disagreements=disagreements(site.store, subject, page=number, in_page=LABELS_IN_PAGE) if subject else [],
        said=said,
        answer_address=lambda one: _answer_address(site, subject, one),
        subject_address=lambda one: _address(site, evaluator, one),
        review=_review_address(site, subject, versions),
        number=number,
        last=-(-subject.n_disagreements // LABELS_IN_PAGE) if subject else 1,
        page_address=lambda page: _address(site, evaluator, subject, page=page),
    )
    return Page(title=f"Judge {evaluator}", section="judges", body=body)


def said(value: float | None, label: str | None, kind: str) -> str | None:
    """Return a verdict as text: of yes/no and numbers the value, of pairs which answer is better."""
    if kind == "pair":
        return {"left": "first better", "right": "second better"}.get(label or "", label or "tie")
    return label if value is None else {1.0: "1 (yes)", 0.0: "0 (no)"}.get(value, f"{value:g}")


def _chosen(subjects: Sequence[LabelledSubject], query: Query) -> LabelledSubject | None:
    """Return what the address names; by default the newest with labels."""
    wanted = {name: query.text(name) for name in ("subject_id", "metric", "people_metric", "evaluator_version")}
    for subject in subjects:
        if all(value in (None, getattr(subject, name)) for name, value in wanted.items()):
            return subject
    if any(wanted.values()):
        given = ", ".join(f"{name} {value!r}" for name, value in wanted.items() if value)
        raise InputError(
            f"labels: got {given}, of which there are none, wanted one of the judge's labelled experiments"
        )
    return None


def _report(site: Site, subject: LabelledSubject | None) -> tuple[JudgeReport | None, str | None]:
    """Return the agreement from the labels of now, or why there is none."""
    if subject is None:
        return None, None
    try:
        return current_report(site.store, subject), None
    except InputError as error:
        return None, str(error)


def _plots(report: JudgeReport) -> dict[str, Plot]:
    """Return the figures that are drawn, by the name of their line."""
    observed = report.observed
    plots: dict[str, Plot] = {}
    for name, figures, field in (
        ("Cohen's kappa", observed.get("agreement"), "kappa"),
        ("Krippendorff's alpha", observed["alpha"], "alpha"),
        ("alpha among people", observed["people_alpha"], "alpha"),
    ):
        if figures:
            plots[name] = (figures[field], figures["low"], figures["high"], (-1.0, 1.0), 0.0)
    if error := observed.get("error"):
        bias = (error["bias"], error["low"], error["high"])
        plots["bias (judge minus people)"] = (*bias, domain([*bias, 0.0]), 0.0)
    return plots | _means(observed)


def _means(observed: Mapping[str, Any]) -> dict[str, Plot]:
    """Return the means by the judge, by people, and prediction-powered, on one scale."""
    if "powered_mean" not in observed:
        return {}
    means = {"judge only": observed["judge_mean"], "labels only": observed["labels_mean"]}
    if observed["no_powered_mean"] is None:
        means["prediction-powered"] = observed["powered_mean"]
    scale = domain([mean[end] for mean in means.values() for end in ("mean", "low", "high")])
    return {name: (mean["mean"], mean["low"], mean["high"], scale, None) for name, mean in means.items()}


def _address(site: Site, evaluator: str, subject: LabelledSubject | None, page: int | None = None) -> str | None:
    if subject is None:
        return None
    fields = ("subject_id", "metric", "people_metric", "evaluator_version")
    address = site.links.judge(evaluator, **{name: getattr(subject, name) for name in fields}, page=page)
    return f"{address}#{'disagreements' if page else 'people'}" if address else None


def _answer_address(site: Site, subject: LabelledSubject | None, one: Disagreement) -> str | None:
    if subject is None:
        return None
    if subject.kind == "pair":
        runs = {"metric": subject.metric, "left": one.run_id, "right": one.other_run_id}
        return site.links.page("pairwise", subject.subject_id, "pair", **runs)
    return site.links.example(subject.subject_id, one.example_id, one.repetition)


def _review_address(site: Site, subject: LabelledSubject | None, versions: Sequence[JudgeHealth]) -> str | None:
    """Return where people label what narrows the interval most."""
    if subject is not None:
        return site.links.page("review", subject=subject.subject_id, metric=subject.people_metric)
    return site.links.page("review", metric=versions[0].metrics[0]) if versions and versions[0].metrics else None


@steady
def judges_page(site: Site, query: Query) -> Page:
    """The list of judges, and their agreement with people."""
    text = query.text("q")
    health = [one for one in judges_health(site.store) if _has(text, one.evaluator, one.judge_model, *one.metrics)]
    standings = [one for one in judge_standings(site.store) if _has(text, one.evaluator, one.judge_model, one.metric)]
    body = render("judges.html", site, judges=health, standings=standings, q=text)
    return Page(title="Judges", section="judges", body=body)


def _has(text: str | None, *names: str) -> bool:
    return text is None or any(text.lower() in name.lower() for name in names)
