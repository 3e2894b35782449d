"""Experiments that differ in the length of their answers, and judges that compare them in pairs."""

import json
import re
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, completion
from matched import asked, experiment

from evalflows import compare
from evalflows.specs import IncompleteError
from evalflows.specs.comparison import ComparisonSpec

N = 12
NAMES = [f"q{i:02}" for i in range(N)]
ROWS = [{"id": name, "inputs": {"question": f"{name}?"}, "outputs": {"answer": name}} for name in NAMES]
Outputs = list[dict[str, Any]]


def longer(outputs: Outputs) -> list[int]:
    return [len(str(one)) for one in outputs]


def answered(*names: str, n: int = N) -> list[str]:
    """Store experiments, each with longer answers than the one before; all answers differ."""
    questions = [f"q{i:02}" for i in range(n)]
    rows = [{"id": name, "inputs": {"question": f"{name}?"}} for name in questions]
    return [
        experiment(name, {one: f"{name} to {one}" + "!" * (5 * place) for one in questions}, place=place, rows=rows)
        for place, name in enumerate(names)
    ]


def shown(request: Request) -> list[str]:
    """The two answers, in the order shown."""
    blocks = re.findall(r"\[BEGIN (?:JSON )?(\w+)\]\n(.*?)\n\[END \1\]", request["messages"][-1]["content"], flags=re.S)
    return [text for _, text in blocks[-2:]]


def by_length(request: Request) -> Reply:
    first, second = (len(one) for one in shown(request))
    return verdict(0 if first == second else 1 if first > second else 2)


def verdict(preference: int) -> Reply:
    return completion(json.dumps({"reasoning": "Because.", "preference": preference}))


def judged_by(endpoint: Endpoint, experiments: list[str], **changes: Any) -> ComparisonSpec:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1, "max_in_flight": 4}
    fields: dict[str, Any] = {
        "experiments": experiments,
        "evaluators": [{"use": "pairwise_preference", "name": "judge", "connection": "mock"}],
        "connections": {"mock": connection},
        "chunk_retry_delay_s": 0.05,
        "max_concurrency": 4,
    }
    return ComparisonSpec.model_validate(fields | changes)


def conclusion(name: str = "%") -> tuple[str, str | None]:
    """The conclusion over all examples of a comparison's only pair, and its reason."""
    query = """select conclusion, reason from win_rates
               where comparison like ? and slice = 'all' and not length_controlled"""
    ((found),) = asked(query, name)
    return found


def incomplete(spec: ComparisonSpec, resume: str | None = None) -> str:
    """Run a comparison that stays incomplete, and return the reason in its row."""
    with pytest.raises(IncompleteError) as caught:
        compare(spec, resume)
    ((state, reason, name, identity),) = asked("select state, reason, name, comparison_id from comparison_sets")
    begin = re.escape(f"comparison {name!r} ({identity}): {reason}; ")
    line = rf"{begin}`evalflows resume {identity}( --set \S+)?` continues"
    assert state == "incomplete" and re.fullmatch(line, str(caught.value))
    assert "\n" not in reason
    return str(reason)
