"""Results of runners of tests: pytest (JUnit XML, pytest-json-report), promptfoo, DeepEval. A test is an example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from evalflows.harnesses.found import Format, Found, at, first, has, rows_in

_OUTCOMES = {"passed": True, "xpassed": True, "failed": False}
"""Of pytest, and whether the test passed; others say nothing of it."""
_EXIT_CODES = {2: "pytest was interrupted", 3: "pytest had an internal error"}
_ERROR = 2
"""promptfoo's reason of a failure that is no answer's fault; 1 is an assertion that failed."""


def _read_junit(root: Element, source: str) -> Iterator[Found]:
    for case in root.iter("testcase"):
        problem = next((found for tag in ("error", "skipped") if (found := case.find(tag)) is not None), None)
        yield Found(
            id="::".join(filter(None, (case.get("classname"), case.get("name")))),
            scores={"passed": case.find("failure") is None if problem is None else None},
            fields={each.get("name", ""): each.get("value") for each in case.iter("property")},
            error=None if problem is None else problem.get("message") or problem.text or problem.tag,
        )


def _read_pytest_json(report: Any, source: str) -> Iterator[Found]:
    for test in report["tests"]:
        crashes = (at(test, stage, "crash", "message") for stage in ("setup", "call", "teardown"))
        passed = _OUTCOMES.get(test["outcome"])
        yield Found(
            id=test["nodeid"],
            scores={"passed": passed},
            fields=test.get("metadata") or {},
            error=next(filter(None, crashes), test["outcome"]) if passed is None else None,
        )


def _promptfoo_rows(content: Any) -> list[Mapping[str, Any]]:
    results = at(content, "results")
    rows = rows_in(content if results is None else at(results, "results") or results)
    return rows if has(rows, "provider", "success") else []


def _read_promptfoo(content: Any, source: str) -> Iterator[Found]:
    rows = _promptfoo_rows(content)
    prompts = {(_provider(row), _prompt(row)) for row in rows}
    are_several = len(prompts) > len({provider for provider, _ in prompts})
    for number, row in enumerate(rows, start=1):
        test = row.get("testCase") or {}
        values = {name: value for name, value in (row.get("vars") or {}).items() if not name.startswith("_")}
        was_graded = row["failureReason"] != _ERROR if "failureReason" in row else row.get("gradingResult")
        error = None if was_graded else row.get("error")
        asked = [each["metric"] for each in test.get("assert") or () if at(each, "metric")]
        scores = {"success": row["success"], "score": row.get("score")} | (row.get("namedScores") or {})
        yield Found(
            place=f": result {number}",
            system=f"{_provider(row)}, {_prompt(row)}" if are_several else _provider(row),
            id=None if values else row.get("testIdx"),
            inputs=values or None,
            output=at(row, "response", "output"),
            scores=dict.fromkeys([*scores, *asked]) if error else scores,
            fields={**values, **(test.get("metadata") or {})},
            error=error,
        )


def _provider(row: Mapping[str, Any]) -> str:
    provider = row["provider"]
    return str(first(provider, ("label", "id")) if isinstance(provider, Mapping) else provider)


def _prompt(row: Mapping[str, Any]) -> str:
    label = first(row.get("prompt") or {}, ("label", "display", "raw"))
    return " ".join(str(label or f"prompt {row.get('promptIdx')}").split())[:60]


JUNIT = Format(
    name="junit",
    title="JUnit XML",
    mark="the root <testsuites> or <testsuite>",
    recognises=lambda content: getattr(content, "tag", None) in ("testsuites", "testsuite"),
    read=_read_junit,
)
PYTEST_JSON = Format(
    name="pytest-json",
    title="pytest-json-report",
    mark="`tests` with `nodeid`, and `exitcode`",
    recognises=lambda content: at(content, "exitcode") is not None and has(at(content, "tests"), "nodeid", "outcome"),
    read=_read_pytest_json,
    unfinished=lambda report: _EXIT_CODES.get(report["exitcode"]),
)
PROMPTFOO = Format(
    name="promptfoo",
    title="promptfoo",
    mark="`results` (or lines) with `provider`, `success` and `vars`",
    recognises=lambda content: bool(_promptfoo_rows(content)),
    read=_read_promptfoo,
    twice="repeated",
    is_sparse=True,
)
