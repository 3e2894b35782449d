"""`traceable`: records steps during a run, and does nothing otherwise."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from evalflows.compat.langsmith import RunTree, get_current_run_tree, trace, traceable, tracing_context
from evalflows.llm.ledger import Recorder, recording
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
    with recording(recorder):
        for expected in ((), (KeyError,)):
            with pytest.raises(KeyError), trace("fails", exceptions_to_handle=expected):
                raise KeyError("x")
    errors = [noted["error"] and noted["error"].partition(":")[0] for noted in recorder.steps]
    assert errors == ["KeyError", "TypeError", "KeyError", None], "one that is expected is no error"


def test_what_cannot_be_honoured_is_refused() -> None:
    with pytest.raises(InputError, match="traceable: project_name: got 'p', wanted None"):
        traceable(project_name="p")
    with pytest.raises(InputError, match="langsmith_extra: got 'run_id', wanted only name, metadata, tags and parent"):
        double(1, langsmith_extra={"run_id": "r"})


def test_a_block_is_a_step_and_knows_the_steps_inside() -> None:
    with recording(run()) as recorder:
        with trace("lookup", "retriever", inputs={"q": "x"}, metadata={"a": 1}, tags=["t"]) as tree:
            assert get_current_run_tree() is tree
            double(2)
            tree.add_metadata({"b": 2})
            tree.end(outputs={"hits": 3})
        assert get_current_run_tree() is None
    outer, inner = recorder.steps
    assert (outer["kind"], outer["name"], outer["inputs"], outer["outputs"]) == (
        "retriever",
        "lookup",
        {"q": "x"},
        {"hits": 3},
    )
    assert (outer["metadata"], outer["tags"]) == ({"a": 1, "b": 2}, ["t"])
    assert (inner["parent"], outer["id"]) == (outer["id"], tree.id)
    assert outer["latency_s"] > 0


def test_a_block_in_async_code_and_one_with_a_parent() -> None:
    async def talk() -> None:
        async with trace("outer") as outer:
            pass
        with trace("later", parent=outer):
            double(1, langsmith_extra={"parent": outer})

    with recording(run()) as recorder:
        asyncio.run(talk())
    outer, later, called = recorder.steps
    assert later["parent"] == called["parent"] == outer["id"]


def test_steps_are_made_by_hand() -> None:
    with recording(run()) as recorder, trace("around"):
        pipeline = RunTree(name="pipeline", run_type="chain", inputs={"q": "x"}, extra={"metadata": {"a": 1}})
        pipeline.post()
        child = pipeline.create_child(name="call", run_type="llm", inputs={"messages": []})
        child.post()
        child.end(outputs={"text": "y"})
        child.patch()
        pipeline.add_tags("late")
        pipeline.end(error="too bad")
        pipeline.patch()
    around, first, second = recorder.steps
    assert (first["parent"], second["parent"]) == (around["id"], first["id"])
    assert (first["inputs"], first["outputs"], first["error"]) == ({"q": "x"}, None, "too bad")
    assert (first["metadata"], first["tags"]) == ({"a": 1}, ["late"])
    assert (second["kind"], second["outputs"], second["error"]) == ("llm", {"text": "y"}, None)
    assert second["latency_s"] > 0 and child.end_time is not None
    assert [tree.name for tree in pipeline.child_runs] == ["call"]


def test_options_of_steps_that_cannot_be_honoured_are_refused() -> None:
    parent = RunTree("never begun")
    for call, message in (
        (lambda: trace("x", project_name="p"), "trace: project_name: got 'p', wanted None"),
        (lambda: trace("x", parent="ignore"), "trace: parent: got 'ignore', wanted a RunTree"),
        (lambda: RunTree("x", session_name="p"), "RunTree: session_name: got 'p', wanted None"),
        (lambda: parent.create_child("x").post(), "its parent 'never begun' has not begun"),
        (lambda: tracing_context(enabled=False).__enter__(), "tracing_context: enabled: got False, wanted True"),
        (lambda: tracing_context(tags=["a"]).__enter__(), "tracing_context: tags: got "),
    ):
        with pytest.raises(InputError, match=message) as raised:
            call()  # type: ignore[no-untyped-call]
        assert "\n" not in str(raised.value)
    with pytest.raises(AttributeError, match=r"RunTree.to_headers: not supported here: a run is recorded in one"):
        parent.to_headers()
