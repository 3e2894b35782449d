"""Trials: recorded answers for each repetition, seeds for each answer, and tools that each example offers."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, completion, serving
from planted_difference import spec, targets

from evalflows import run
from evalflows.specs.errors import InputError
from evalflows.targets import seed_of

pytestmark = pytest.mark.usefixtures("without_prefect")


def recording(path: Path, *trials: int) -> dict[str, Any]:
    lines = [f"q{number},{trial},Q{number if trial else 'no'}" for number in range(40) for trial in trials]
    path.write_text("\n".join(["task,trial,said", *lines]))
    columns = {"id": "task", "repetition": "trial", "outputs": {"answer": "said"}}
    return {"kind": "recorded", "path": str(path), "columns": columns}


def test_trials_counted_from_1_are_told_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"repetition 0 of this example, only for 1, 2; no answer for any of 40"):
        run(spec(targets=[recording(tmp_path / "trials.csv", 1, 2)], repetitions=2))


def drawn(question: str, seed: int, repetition: int) -> dict[str, Any]:
    return {"answer": random.Random(seed).random(), "seed": seed, "repetition": repetition}


def drawn_too(inputs: dict[str, Any], seed: int) -> dict[str, Any]:
    return {"answer": random.Random(seed).random(), "seed": seed}


@pytest.mark.slow
def test_targets_that_draw_get_the_same_seed_for_the_same_trial_in_every_run() -> None:
    for _ in range(2):
        run(spec(targets=targets(drawn=drawn, drawn_too=drawn_too), repetitions=2, evaluators=[]))
    found = rows(
        """select example_id, repetition, count(distinct outputs ->> 'answer'), min(outputs ->> 'seed'),
                  max(outputs ->> 'seed'), max(outputs ->> 'repetition'), count(*)
           from outputs group by all"""
    )
    assert len(found) == 80
    for example, repetition, answers, least, most, said, runs in found:
        assert (answers, int(least), int(most)) == (1, *[seed_of(example, repetition)] * 2)
        assert (int(said), runs) == (repetition, 4)
    assert len({seed for _, _, _, seed, *_ in found}) == 80


AREA = {"name": "maths.area", "parameters": {"type": "dict", "properties": {"side": {"type": "float"}}}}
PLAY = {"name": "play", "parameters": {"type": "dict", "properties": {"song": {"type": "string"}}}}


def called(request: Request) -> Reply:
    """Call the only tool that is offered, with an argument of the type that its schema has."""
    (tool,) = request["tools"]
    ((argument, schema),) = tool["function"]["parameters"]["properties"].items()
    made = json.dumps({argument: {"number": 2, "string": "Ode"}[schema["type"]]})
    call = {"id": "1", "type": "function", "function": {"name": tool["function"]["name"], "arguments": made}}
    return completion(None, tool_calls=[call])


@pytest.mark.slow
def test_each_example_offers_its_own_tools_and_is_judged_by_them() -> None:
    area = {"id": "area", "question": "How large is it?", "function": [AREA], "truths": [{"maths.area": {"side": [2]}}]}
    play = {"id": "play", "question": "Play it.", "function": [PLAY], "truths": [{"play": {"song": ["Ode"]}}]}
    columns = {"inputs": "question", "reference_outputs": {"tool_calls": "truths"}}
    evaluators = [
        {"use": "tool_arguments", "name": "right", "args": {"arguments": "allowed", "numbers": "strict"}},
        {"use": "tool_arguments", "name": "typed", "args": {"arguments": "types", "tools": "metadata.function"}},
    ]
    with serving(Endpoint(answer=called)) as endpoint:
        target = {"kind": "chat", "connection": "mock", "tools": "metadata.function"}
        mock = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}
        dataset = {"name": "tools", "rows": [area, play], "columns": columns}
        run(spec(dataset=dataset, targets=[target], connections={"mock": mock}, evaluators=evaluators))
    assert sorted(request["tools"][0]["function"]["name"] for request in endpoint.requests) == ["maths_area", "play"]
    names = rows("select outputs ->> '$.tool_calls[0].function.name' from outputs order by 1")
    assert names == [("maths.area",), ("play",)]
    means = rows("select metric, mean from metric_summary where metric in ('right', 'typed') order by 1")
    assert means == [("right", 1.0), ("typed", 1.0)]
