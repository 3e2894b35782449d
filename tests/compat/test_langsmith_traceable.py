"""`traceable`: records steps during a run, and does nothing otherwise."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from evalflows.compat.langsmith import traceable
from evalflows.compat.langsmith.functions import as_target
from evalflows.llm.recorder import Recorder, recording
from evalflows.specs import InputError


def run() -> Recorder:
    return Recorder(keep=lambda _: None)


@traceable
def double(x: int, *, times: int = 2) -> int:
    return x * times


def test_a_call_is_a_step_of_the_run() -> None:
    with recording(run()) as recorder:
        assert double(3, times=3) == 9
    (noted,) = recorder.steps
    assert noted.items() >= {"kind": "chain", "name": "double", "inputs": {"x": 3, "times": 3}, "error": None}.items()
    assert noted["outputs"] == {"output": 9}
    assert double(4) == 8
    assert len(recorder.steps) == 1, "without a run it is just called"


def test_the_options_say_how_it_is_noted() -> None:
    @traceable(
        run_type="tool",
        name="search",
        metadata={"a": 1},
        tags=["x"],
        process_inputs=lambda inputs: {"n": len(inputs)},
        process_outputs=lambda outputs: {"first": outputs["hits"][0]},
    )
    def find(query: str) -> dict[str, Any]:
        return {"hits": [query, "other"]}

    @traceable("retriever")
    def fetch() -> None: ...

    with recording(run()) as recorder:
        assert find("q", langsmith_extra={"metadata": {"b": 2}, "tags": ["y"], "name": "n"}) == {"hits": ["q", "other"]}
        fetch()
    first, second = recorder.steps
    assert (first["kind"], first["name"], first["inputs"], first["outputs"]) == ("tool", "n", {"n": 1}, {"first": "q"})
    assert (first["metadata"], first["tags"]) == ({"a": 1, "b": 2}, ["x", "y"])
    assert (second["kind"], second["name"], second["outputs"]) == ("retriever", "fetch", {"output": None})


def test_async_functions_and_methods_and_generators() -> None:
    class Bot:
        @traceable
        async def ask(self, question: str) -> str:
            return double(2) * question

        @traceable
        def tokens(self) -> Iterator[str]:
            yield from "ab"

    async def talk() -> str:
        with recording(recorder):
            return str(await Bot().ask("x"))

    recorder = run()
    assert asyncio.run(talk()) == "xxxx"
    with recording(recorder):
        assert list(Bot().tokens()) == ["a", "b"]
    outer, inner, stream = recorder.steps
    assert (outer["name"], outer["inputs"], outer["outputs"]) == ("ask", {"question": "x"}, {"output": "xxxx"})
    assert inner["parent"] == outer["id"]
    assert stream["outputs"] is None
    assert asyncio.run(Bot().ask("y")) == "yyyy"
    assert len(recorder.steps) == 3


def test_what_it_raises_is_noted_and_raised() -> None:
    @traceable
    def fails(x: int) -> None:
        raise KeyError(x)

    with recording(run()) as recorder, pytest.raises(KeyError):
        fails(1)
    with recording(recorder), pytest.raises(TypeError):
        fails()
    assert [noted["error"].partition(":")[0] for noted in recorder.steps] == ["KeyError", "TypeError"]


def test_a_target_that_is_traceable_is_the_run_and_no_step_of_it() -> None:
    with recording(run()) as recorder:
        assert as_target(double)(inputs=3) == 6
    assert not recorder.steps


def test_what_cannot_be_honoured_is_refused() -> None:
    with pytest.raises(InputError, match="traceable: project_name: got 'p', wanted None"):
        traceable(project_name="p")
    with pytest.raises(InputError, match="langsmith_extra: got 'run_id', wanted only name, metadata and tags"):
        double(1, langsmith_extra={"run_id": "r"})
