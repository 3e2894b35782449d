"""A JUnit report says of every rule what the gate says: passed, failed, or undecided."""

import re
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from evalflows.reports.decisions import Decision
from evalflows.reports.junit import junit
from evalflows.store.records import to_json

HOSTILE = "a\x00b\x1b[31m\u202ered\x0b\ufffe\uffff <b>&\"']]> \n second line"


def rule(outcome: str, text: str = "accuracy is not worse", reason_code: str | None = None) -> dict[str, Any]:
    return {
        "rule": "non_inferiority",
        "bound": 0.05,
        "metric": "accuracy",
        "outcome": outcome,
        "text": text,
        "reason_code": reason_code,
    }


def decided(conclusion: str, *rules: dict[str, Any], gate: str = "release") -> Decision:
    return Decision(
        decision_id="dec-1",
        gate=gate,
        conclusion=conclusion,
        summary="",
        candidate_experiment_id="exp-2",
        candidate="new",
        baseline_experiment_id=None,
        baseline=None,
        confidence_level=0.95,
        n_shared=None,
        interim_analyses=None,
        calls_saved=None,
        earlier_decisions=0,
        decided_at=datetime(2026, 11, 24, 1, 2, 3, tzinfo=UTC),
        evalflows_version="1",
        git_commit=None,
        flow_run_id=None,
        reasons=to_json(list(rules)),
        comparability=None,
        policy=None,
        candidate_apart="new",
        baseline_apart=None,
    )


def parsed(decisions: list[Decision], incomplete: str | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(junit(decisions, incomplete))


def test_a_suite_per_decision_and_a_testcase_per_rule() -> None:
    failed = decided("FAIL", rule("met"), rule("broken", "accuracy is worse by more than 0.05"), rule("open"))
    root = parsed([failed, decided("PASS", rule("met"), gate="other")])
    first, second = root.findall("testsuite")
    wanted = {"tests": "3", "failures": "1", "errors": "1", "timestamp": "2026-11-24T01:02:03", "id": "0"}
    assert first.attrib.items() >= {**wanted, "name": "gate release: new"}.items()
    assert second.attrib.items() >= {"tests": "1", "failures": "0", "errors": "0", "id": "1"}.items()
    met, broken, undecided = first.findall("testcase")
    assert met.attrib == {"classname": "gate.release", "name": "non inferiority: accuracy", "time": "0"} and not list(
        met
    )
    assert [child.tag for child in broken] == ["failure"] and [child.tag for child in undecided] == ["error"]
    assert broken[0].attrib == {"type": "non_inferiority", "message": "accuracy is worse by more than 0.05"}
    assert [child.tag for child in first][0::6] == ["properties"], "the schema's order"
    assert [child.tag for child in first][-2:] == ["system-out", "system-err"]
    assert "evalflows explain dec-1" in (first.findtext("system-out") or "")


def test_an_incomplete_run_is_an_error_whatever_its_gates_say() -> None:
    for decisions in ([], [decided("PASS", rule("met"))]):
        (error,) = parsed(decisions, "budget of 1 USD used up").findall(".//error")
        assert error.attrib == {"type": "incomplete", "message": "budget of 1 USD used up"}


def test_characters_that_xml_forbids_are_shown_as_escapes() -> None:
    text = junit([decided("FAIL", rule("broken", HOSTILE), gate=HOSTILE)])
    (failure,) = ElementTree.fromstring(text).findall(".//failure")
    shown = "a\\x00b\\x1b[31m\\u202ered\\x0b\\ufffe\\uffff <b>&\"']]>"
    assert failure.text == f"{shown} \n second line"
    assert failure.get("message") == f"{shown} second line"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff\ufffe\uffff]", text)
    text.encode("utf-8")
