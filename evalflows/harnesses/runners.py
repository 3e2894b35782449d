"""Results of runners of tests, in which a test is an example: pytest, promptfoo, DeepEval."""

from collections.abc import Iterator, Mapping
from typing import Any

from evalflows.harnesses.assembling import Row, at, first, has, rows_in
from evalflows.specs.escaping import joined

_PASSED = {"passed": True, "xpassed": True, "failed": False}  # pytest's other outcomes are missing
_EXIT_CODES = {2: "pytest was interrupted", 3: "pytest had an internal error"}
_NOT_GRADED = 2  # promptfoo's reason of a failure that no assertion found


def read_junit(content: Any, source: str) -> Iterator[Row]:
    (root,) = content.values()
    for case in root.iter("testcase"):
        lack = next((each for each in case if each.tag in ("error", "skipped")), None)
        yield {
            "id": "::".join(filter(None, (case.get("classname"), case.get("name")))),
            "scores": {"passed": case.find("failure") is None if lack is None else None},
            "metadata": {each.get("name", ""): each.get("value") for each in case.iter("property")},
            "error": None if lack is None else lack.get("message") or lack.tag,
        }


def read_pytest_json(report: Any, source: str) -> Iterator[Row]:
    for test in report["tests"]:
        passed = _PASSED.get(test["outcome"])
        crashes = filter(None, (at(test, stage, "crash", "message") for stage in ("setup", "call", "teardown")))
        error = next(crashes, test["outcome"]) if passed is None else None
        said = {"metadata": test.get("metadata"), "error": error, "unfinished": _EXIT_CODES.get(report["exitcode"])}
        yield {"id": test["nodeid"], "scores": {"passed": passed}, **said}


def read_promptfoo(content: Any, source: str) -> Iterator[Row]:
    results = content["results"] if has(content, "results") else content
    rows = rows_in(results["results"] if has(results, "results") else results)
    systems = [_provider_and_prompt(row) for row in rows]
    are_several = len({*systems}) > len({provider for provider, _ in systems})
    for row, (provider, prompt) in zip(rows, systems, strict=True):
        test = row.get("testCase") or {}
        given = row.get("vars") or test.get("vars") or {}
        inputs = {name: value for name, value in given.items() if not name.startswith("_")}
        was_graded = row["failureReason"] != _NOT_GRADED if "failureReason" in row else row.get("gradingResult")
        error = None if was_graded else row.get("error")
        asked = [each["metric"] for each in test.get("assert") or () if at(each, "metric")]
        scores = {"success": row["success"], "score": row.get("score"), **(row.get("namedScores") or {})}
        yield {
            "system": f"{provider}, {prompt}" if are_several else provider,
            "id": None if inputs else test.get("description") or row.get("testIdx"),
            "inputs": inputs or None,
            "output": at(row, "response", "output"),
            "scores": dict.fromkeys([*scores, *asked]) if error else scores,
            "metadata": {**inputs, **(test.get("metadata") or {})},
            "error": error,
        }


def _provider_and_prompt(row: Row) -> tuple[Any, str]:
    provider, prompt = row["provider"], row.get("prompt") or {}
    label = f"{joined(first(prompt, ('label', 'display')) or 'prompt')[:60]} #{row.get('promptIdx', 0)}"
    return first(provider, ("label", "id")) if isinstance(provider, Mapping) else provider, label


def read_deepeval(run: Any, source: str) -> Iterator[Row]:
    for case in [*(run.get("testCases") or ()), *(run.get("conversationalTestCases") or ())]:
        metrics = case.get("metricsData") or ()
        errors = [each["error"] for each in metrics if each.get("error")]
        scores = {each["name"]: None if each.get("error") else each.get("score") for each in metrics}
        yield {
            "inputs": first(case, ("input", "turns", "scenario")),
            "reference": first(case, ("expectedOutput", "expectedOutcome")),
            "output": case.get("actualOutput"),
            "scores": {"success": None if errors else case.get("success"), **scores},
            "metadata": case.get("metadata"),
            "error": "; ".join(errors),
        }
