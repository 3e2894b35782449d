"""Gate decisions as a JUnit report, which CI systems show: a testsuite per decision, a testcase per rule.

A report has no failure and no error exactly if `evalflows gate` ends with 0. So a rule that is still open is an error:
CI systems count skipped tests as green, but without enough evidence the gate has not passed; and nothing has failed.
It fits the schemas of Ant's JUnit task and of Jenkins' xUnit plugin.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from evalflows.reports.decisions import Decision
from evalflows.specs import hints
from evalflows.specs.escaping import escaped, joined, one_line
from evalflows.store.described import RuleOutcome

TAGS = {"broken": "failure", "open": "error"}
"""The element of a rule that is not met, by its outcome."""

PROPERTIES = ("decision_id", "conclusion", "candidate_experiment_id", "baseline_experiment_id", "git_commit")
"""Fields of a decision that are a suite's properties."""


def junit(decisions: Sequence[Decision], incomplete: str | None = None, *, is_kept: bool = True) -> str:
    """Return the XML. `incomplete` says why the run did not finish, which is an error in a suite of its own.

    Decisions that no store keeps have no command that explains them.
    """
    suites = [_decided(decision, is_kept=is_kept) for decision in decisions]
    if incomplete is not None:
        case = _case("evalflows", "the run is complete", "error", "incomplete", incomplete)
        suites.append(_suite("run", datetime.now(UTC), [case], {}, ""))
    root = Element("testsuites")
    for number, suite in enumerate(suites):
        suite.set("id", str(number))
        root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _decided(decision: Decision, *, is_kept: bool) -> Element:
    properties = {name: value for name in PROPERTIES if (value := getattr(decision, name)) is not None}
    lines = [f"{rule.outcome}: {rule.text}" for rule in decision.rules]
    why = [f"why, and how to reproduce it: {hints.explain(decision.decision_id)}"] * is_kept
    cases = [_rule(decision.gate, rule) for rule in decision.rules]
    output = "\n".join([*lines, *decision.where, *decision.what_limits, *why])
    return _suite(decision.suite, decision.decided_at, cases, properties, output)


def _rule(gate: str, rule: RuleOutcome) -> Element:
    name = f"{rule.name}: {rule.metric}"
    return _case(f"gate.{gate}", name, TAGS.get(rule.outcome), rule.reason_code or rule.rule, rule.text)


def _case(classname: str, name: str, tag: str | None, kind: str, text: str) -> Element:
    """Return a testcase: passed without a tag, else with this element, its type and its text."""
    case = Element("testcase", classname=_line(classname), name=_line(name), time="0")
    if tag is not None:
        SubElement(case, tag, type=kind, message=_line(text)).text = escaped(text)
    return case


def _suite(name: str, at: datetime, cases: Sequence[Element], properties: Mapping[str, str], output: str) -> Element:
    suite = Element("testsuite", name=_line(name), package="evalflows", hostname="localhost", time="0")
    suite.attrib |= {f"{tag}s": str(sum(case.find(tag) is not None for case in cases)) for tag in TAGS.values()}
    suite.attrib |= {"tests": str(len(cases)), "timestamp": f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"}
    listed = SubElement(suite, "properties")
    for key, value in properties.items():
        SubElement(listed, "property", name=key, value=_line(value))
    suite.extend(cases)
    SubElement(suite, "system-out").text = escaped(output)
    SubElement(suite, "system-err")
    return suite


def _line(text: str) -> str:
    return one_line(joined(text))
