"""Plans as a whole: their warnings, and what a request must satisfy."""

import math
from pathlib import Path
from typing import Any

import pytest
from planned import chat_spec, normal_values, recorded_spec, store_experiments

from evalflows.analysis.plan import sentences_of
from evalflows.api.planning import plan
from evalflows.specs import InputError


def test_a_budget_that_is_too_small_is_mentioned() -> None:
    found = sentences_of(plan(chat_spec(second="mine", budget_usd=0.01, max_calls=80)))
    assert any(sentence.startswith("budget_usd: 0.01 may not be enough") for sentence in found)
    assert any(sentence.startswith("max_calls: 80 may not be enough") for sentence in found)
    enough = sentences_of(plan(chat_spec(second="mine", budget_usd=100, max_calls=81)))
    assert not any("may not be enough" in sentence for sentence in enough)


def test_a_plan_changes_nothing_in_the_store(store_root: Path) -> None:
    spec = chat_spec(evaluators=[{"use": "correctness", "connection": "mine", "controls": 5}])
    store_experiments(normal_values(40, 1, between=1.0, within=0.1), recorded_spec(40))
    before = {path: path.read_bytes() for path in store_root.rglob("*") if path.is_file()}
    plan(spec, 0.1)
    assert {path: path.read_bytes() for path in store_root.rglob("*") if path.is_file()} == before


def test_invalid_requests_raise_input_errors() -> None:
    requests: list[tuple[dict[str, Any], str]] = [
        ({"effect": 0.0}, "effect: got 0, wanted a number above 0"),
        ({"effect": math.nan}, "effect: got nan, wanted a number above 0"),
        ({"power": 0.01}, "power: got 0.01, wanted a number between 0.025 and 1"),
        ({"power": 1.0}, "power: got 1, wanted"),
        ({"metrics": ["charm"]}, "metric: no evaluator gives 'charm', wanted some of contains, latency"),
    ]
    for given, message in requests:
        with pytest.raises(InputError, match=message):
            plan(recorded_spec(5, evaluators=["contains"]), **given)
