"""Decisions of gates on a terminal."""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from rich.console import Group, RenderableType
from rich.padding import Padding

from evalflows.cli.late_commands import NOT_ENOUGH_EVIDENCE
from evalflows.cli.output import DECISION_STYLES, Console, Table, Text, console, echo, echo_error, indented_lines, table
from evalflows.cli.sections import Section, lines_section
from evalflows.reports.candidates import CandidatesOfGate, limits_of
from evalflows.reports.decisions import Decision
from evalflows.specs import hints

OUTCOMES = {"met": "green", "broken": "bold red", "open": "yellow"}


def decisions_section(decisions: Sequence[Decision | CandidatesOfGate], *, is_kept: bool = True) -> Section:
    """Return each decision: the conclusion, then its rules, those that are met last.

    Several candidates stand in a table, with the ids of the decisions if a store keeps them.
    """
    return Section(items=[*decisions], draw=partial(_decisions_in_brief, is_kept=is_kept), what="decision")


def _decisions_in_brief(decisions: Sequence[Decision | CandidatesOfGate], *, is_kept: bool) -> RenderableType:
    parts: list[RenderableType] = []
    for decision in decisions:
        if isinstance(decision, CandidatesOfGate):
            where = [Padding(Text(line), (0, 0, 0, 2)) for line in decision.where]
            parts += [
                Text(decision.title, style="bold"),
                Text(decision.standing),
                _candidates(decision, is_kept=is_kept),
                *where,
            ]
            continue
        parts.append(
            Text(decision.conclusion, DECISION_STYLES[decision.conclusion]).append(f"  {decision.title}", "bold")
        )
        out = indented_lines(7)
        kinds: dict[tuple[str, str], list[str]] = {}  # of the rules with the same outcome and text
        for rule in sorted(decision.rules, key=lambda rule: [*OUTCOMES].index(rule.outcome), reverse=True):
            kinds.setdefault((rule.outcome, rule.text), []).append(rule.name)
        for (outcome, text), of_text in kinds.items():
            of_rules = f" ({', '.join(of_text)})" if len(of_text) > 1 else ""
            out.add_row(Text(outcome, style=OUTCOMES[outcome]), Text(f"{text}{of_rules}"))
        for number, line in enumerate(decision.where):
            out.add_row("" if number else "where", Text(line))
        parts.append(Padding(out, (0, 0, 0, 2)))
    return Group(*parts)


def limits_section(decisions: Sequence[Decision | CandidatesOfGate]) -> Section:
    """Return what limits the decisions, each once; never cut."""
    each = (entry.decisions if isinstance(entry, CandidatesOfGate) else [entry] for entry in decisions)
    limits = limits_of([*chain.from_iterable(each)])
    lines = indented_lines(8)
    for number, limit in enumerate(limits):
        lines.add_row("" if number else "limits", Text(limit, "yellow"))
    return lines_section([lines] if limits else [], is_apart=True)


def print_decisions(decisions: Iterable[Decision | CandidatesOfGate]) -> None:
    """Print each decision: the conclusion, and the result of every rule; those of one gate on several candidates in one
    table."""
    out = console()
    for decision in decisions:
        out.print()
        if isinstance(decision, CandidatesOfGate):
            _print_candidates(out, decision)
            continue
        print_decision(out, decision)
        echo(f"  why, and how to reproduce it: {hints.explain(decision.decision_id)}")


def _print_candidates(out: Console, candidates: CandidatesOfGate) -> None:
    """Print the decision and each rule by candidate, how the candidates compare, and what limits the decisions."""
    out.print(Text(candidates.title, style="bold"))
    out.print(_candidates(candidates))
    out.print(Text(candidates.standing, style="bold"))
    _print_limits(out, candidates.limits)
    for line in candidates.where:
        out.print(Padding(Text(line), (0, 0, 0, 2)))
    echo(f"why, and how to reproduce it: {hints.explain('DECISION')}")


def _candidates(candidates: CandidatesOfGate, *, is_kept: bool = True) -> Table:
    rows = table("rule", "candidate", "outcome", "value", headings=2, wrapped=("value",))
    for decision in candidates.decisions:
        conclusion = Text(decision.conclusion, style=DECISION_STYLES[decision.conclusion])
        rows.add_row("decision", decision.candidate_apart, conclusion, decision.decision_id if is_kept else "")
    for rule in candidates.rules:
        outcome = Text(rule.outcome, style=OUTCOMES[rule.outcome])
        rows.add_row(rule.rule, rule.candidate, outcome, rule.figures or rule.text)
    return rows


def _print_limits(out: Console, limits: Sequence[str]) -> None:
    if limits:
        out.print("  limits of this decision:")
    for limit in limits:
        out.print(Padding(Text(limit, style="yellow"), (0, 0, 0, 4)))


def print_decision(out: Console, decision: Decision) -> None:
    out.print(Text(f"{decision.title}: ").append(decision.conclusion, style=DECISION_STYLES[decision.conclusion]))
    out.print(_rules(decision))
    _print_limits(out, decision.what_limits)
    for number, line in enumerate(decision.where):
        out.print(Padding(Text(line), (0, 0, 0, 4 if number else 2)))
    if decision.where_command:
        echo(f"    examples of the first: {decision.where_command}")
    if decision.calls_saved is not None:
        out.print(f"  {decision.interim_analyses} interim analyses; {decision.calls_saved} model calls saved")


def _rules(decision: Decision) -> RenderableType:
    """Return the outcome, kind and text of each rule; long texts are wrapped in their column."""
    out = indented_lines(7, 20)
    for rule in decision.rules:
        mark = Text(rule.outcome, style=OUTCOMES[rule.outcome])
        out.add_row(mark, Text(rule.name), Text(rule.text))
    return Padding(out, (0, 0, 0, 2))


def end_undecided(decisions: Sequence[Decision]) -> None:
    """End the process with a line on decisions for which there is not enough evidence, if there are any."""
    if decisions:
        echo_error("; ".join(f"{decision.title}: {decision.conclusion}" for decision in decisions))
        sys.exit(NOT_ENOUGH_EVIDENCE)
