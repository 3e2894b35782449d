"""Pages of gate decisions: their list, and one with its rules against their bounds."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import get_args

from evalflows.analysis.figures import estimate
from evalflows.analysis.rules import Rule
from evalflows.dashboard.charts import domain
from evalflows.dashboard.rendering import Page, Query, Site, render, steady
from evalflows.reports.candidates import CandidatesOfGate, candidates_of_gates
from evalflows.reports.decisions import (
    Decision,
    DecisionChoice,
    decisions_beside,
    decisions_on,
    explained,
    find_decision,
    gate_names,
    listed_decisions,
    with_limits,
    with_manifests,
)
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import metric_of
from evalflows.store.described import RuleOutcome
from evalflows.store.queries.conclusions import approvals
from evalflows.store.records import DecisionConclusion
from evalflows.store.sql import ask
from evalflows.store.store import Store

COLOURS = {"met": "better", "broken": "worse", "open": ""}

Scale = tuple[float, float]

_DIRECTIONS = """
select metric, higher_is_better(e.spec, metric)
from experiments e, (select unnest($2::varchar[]) as metric) m where e.experiment_id = $1
"""

_WORST_CASES = "select rule, metric, worst_case_ci_low, worst_case_ci_high from gate_rules where decision_id = $1"

DECISIONS_IN_PAGE = 50

CONCLUSIONS: Sequence[DecisionConclusion] = get_args(DecisionConclusion)


@steady
def decision_page(site: Site, query: Query) -> Page:
    """Return one decision. Its address may also name a gate or a candidate: the newest decision counts."""
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
        others=[other for other in decisions_on(site.store, candidate) if other.decision_id != decision.decision_id],
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
    """Return all candidates of the decision's gate in its run, if there are several against its baseline."""
    found = candidates_of_gates(store, decisions_beside(store, decision))
    several = [of_gate for of_gate in found if isinstance(of_gate, CandidatesOfGate)]
    baseline = decision.baseline_experiment_id
    return next((of_gate for of_gate in several if of_gate.decisions[0].baseline_experiment_id == baseline), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRule(RuleOutcome):
    """One rule of a decision, and where its estimate must lie."""

    higher_is_better: bool
    threshold: float  # where the estimate must lie above, or below if less is better; in the metric's own direction
    worst_case_low: float | None  # with missing values at either extreme; None if it is not known
    worst_case_high: float | None

    @property
    def has_worst_case(self) -> bool:
        """Whether missing values widen the interval."""
        worst, plain = (self.worst_case_low, self.worst_case_high), (self.low, self.high)
        return None not in worst and worst != plain and bool(self.n_missing)


def stored_rules(store: Store, decision: Decision) -> list[StoredRule]:
    """Return the rules of a decision, in its order."""
    metrics = [metric_of(rule.metric) for rule in decision.rules]
    directions, verdicts = ask(
        store, (_DIRECTIONS, [decision.candidate_experiment_id, metrics]), (_WORST_CASES, [decision.decision_id])
    )
    higher = dict(directions)
    worst = {(rule, metric): (low, high) for rule, metric, low, high in verdicts}
    return [
        _stored(rule, higher.get(metric_of(rule.metric), True), worst.get((rule.rule, rule.metric)))
        for rule in decision.rules
    ]


def _stored(given: RuleOutcome, higher_is_better: bool, worst_case: Sequence[float | None] | None) -> StoredRule:
    rule = Rule(kind=given.rule, metric=given.metric, bound=given.bound)
    threshold = rule.threshold(higher_is_better=higher_is_better)
    low, high = worst_case if worst_case and rule.is_difference else (None, None)
    return StoredRule(
        **given.as_dict(),
        higher_is_better=higher_is_better,
        threshold=threshold if higher_is_better else -threshold,
        worst_case_low=low,
        worst_case_high=high,
    )


def figures_of(rule: StoredRule) -> str:
    """Return a rule's estimate with its interval, as text."""
    marks = (rule.threshold,)
    texts = estimate(rule.value, rule.low, rule.high, rule.metric, signed=rule.is_difference, marks=marks)
    return " ".join(filter(None, texts))


def threshold_of(rule: StoredRule) -> str:
    """Return where the estimate must lie, as text; a plain threshold may also be met exactly."""
    sides = ("at least", "at most") if rule.rule == "threshold" else ("above", "below")
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


@steady
def decisions_page(site: Site, query: Query) -> Page:
    """Return the list of decisions."""
    gates, number = gate_names(site.store), query.number("page")
    conclusion = query.choice("conclusion", CONCLUSIONS, "PASS") if query.text("conclusion") else None
    choice = DecisionChoice(gate=query.text("gate"), conclusion=conclusion, text=query.text("q"))
    sort = query.text("sort") or "-decided"
    decisions, total = listed_decisions(site.store, choice, page=number, in_page=DECISIONS_IN_PAGE, sort=sort)
    values = {"gate": choice.gate, "conclusion": conclusion, "q": choice.text, "sort": query.text("sort")}
    address = partial(site.links.page, "decisions", **values)
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
        sort=sort,
        paged=lambda page: address(page=page),
        address=address,
    )
    return Page(title="Decisions", section="decisions", body=body)
