"""The spec of docs/reference/conversations.md: what people said as an experiment beside a chat target, turn by turn."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, completion, serving

from evalflows import run
from evalflows.specs import ExperimentSpec

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "conversations.md").read_text(encoding="utf-8")


def answer(request: Request) -> Reply:
    """A bot that always says the same, and a judge that finds just that bad: it asks for what was said already."""
    prompt, form = request["messages"][-1]["content"], request.get("response_format")
    if form is None:
        return completion("Which order is it about?")
    fields = form["json_schema"]["schema"]["properties"]
    is_bad = "Which order is it about?" in prompt
    fact = {"fact": "the number", "before_turn": 1, "use": "ignored" if is_bad else "used"}
    verdict = {"score": 1 if is_bad else 4} if "score" in fields else {"facts": [fact]}
    return completion(json.dumps({"reasoning": "As planted."} | verdict))


def shown() -> dict[str, Any]:
    """The spec, with the endpoint in place of what `auto` stands for."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S)
    found: dict[str, Any] = yaml.safe_load(block.replace("connection: auto", "connection: mock"))
    return found


def of_turns() -> list[tuple[Any, ...]]:
    (query,) = re.findall(r'evalflows sql "(.*?)"', PAGE)
    query = query.replace("from scores", "from scores join experiments using (experiment_id)")
    query = query.replace("select turn", "select target, turn").replace("by turn order by turn", "by all order by all")
    return rows(query)


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_people_are_an_experiment_beside_the_bot_with_a_score_for_each_turn() -> None:
    with serving(Endpoint(answer=answer)) as endpoint:
        connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "mock-1"}
        run(ExperimentSpec.model_validate(shown() | {"connections": {"mock": connection}}))
    assert of_turns() == [("bot", 1, 1.0), ("bot", 2, 1.0), ("people", 1, 4.0), ("people", 2, 4.0)]
    assert rows("select target, mean, scored from results where metric = 'turn_quality' order by target") == [
        *(("bot", 1.0, 4), ("people", 4.0, 4))
    ]
    assert rows("select target, mean, scored from results where metric = 'context_use' order by target") == [
        *(("bot", 0.0, 2), ("people", 1.0, 2))  # the first turns have nothing before them to use
    ]
    assert rows("select distinct target, outputs from item_scores where example_id = 'talk-2#2' order by target") == [
        ("bot", '{"output":"Which order is it about?"}'),
        ("people", '{"output":"Then we send you a new lamp. You need not send the old one back."}'),
    ]
