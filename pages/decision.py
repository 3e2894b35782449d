"""One gate's decision: its rules as intervals against their bounds, the reasons, and how to make it again."""

from collections.abc import Mapping, Sequence

from evalflows.analysis.gates.stored_rules import StoredRule, stored_rules
from evalflows.pages.charts import domain
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.decision_limits import with_limits
from evalflows.reports.decisions import Decision, decisions_on, find_decision
from evalflows.reports.figures import estimate
from evalflows.reports.reproduce_decision import explained
from evalflows.store.queries.baselines import approvals

COLOURS = {"met": "better", "broken": "worse", "open": ""}

Scale = tuple[float, float]


def decision_page(site: Site, query: Query) -> Page:
    """One decision. Its address may also name a gate or a candidate: the newest decision counts."""
    return site.store.steady(lambda: _decision_page(site, query))  # the store's files are listed once


def _decision_page(site: Site, query: Query) -> Page:
    (decision,) = with_limits(site.store, [find_decision(site.store, query.wanted("id"))])
    rules = stored_rules(site.store, decision)
    candidate = decision.candidate_experiment_id
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
        approvals=approvals(site.store, [*filter(None, [decision.baseline_experiment_id, candidate])]),
        compared=_compared(site, decision),
        sections=list(explained(site.store, decision)),
    )
    return Page(title=f"{decision.title[0].upper()}{decision.title[1:]}", section="decisions", body=body)


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
