"""The list of gate decisions, newest first, and the approved baselines."""

from collections.abc import Sequence
from typing import get_args

from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.decisions import DecisionChoice, gate_names, listed_decisions
from evalflows.store.queries.baselines import approvals
from evalflows.store.records import DecisionConclusion

IN_PAGE = 50

CONCLUSIONS: Sequence[DecisionConclusion] = get_args(DecisionConclusion)


def decisions_page(site: Site, query: Query) -> Page:
    """The list of decisions."""
    gates, number = gate_names(site.store), query.number("page")
    conclusion = query.choice("conclusion", CONCLUSIONS, "PASS") if query.text("conclusion") else None
    choice = DecisionChoice(gate=query.text("gate"), conclusion=conclusion, text=query.text("q"))
    decisions, total = listed_decisions(site.store, choice, page=number, in_page=IN_PAGE)
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
        last=-(-total // IN_PAGE),
        address=lambda page: site.links.page(
            "decisions", gate=choice.gate, conclusion=choice.conclusion, q=choice.text, page=page
        ),
    )
    return Page(title="Decisions", section="decisions", body=body)
