"""Langfuse's client: what it accepts is Langfuse's, and what it does not accept says so."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from made_traces import BEGAN, observation, traces, write

from evalflows.compat.langfuse import (
    BatchEvaluationResult,
    BatchEvaluationResumeToken,
    Evaluation,
    EvaluatorInputs,
    EvaluatorStats,
    Langfuse,
    get_client,
)
from evalflows.compat.langfuse.absent import METHODS, NAMES
from evalflows.compat.langfuse.client import DatasetClient
from evalflows.compat.langfuse.evaluations import Item, as_composite, as_mapper, as_row, complete, wrapped
from evalflows.compat.langfuse.experiment import ExperimentItemResult, ExperimentResult
from evalflows.evaluators import views
from evalflows.evaluators.views import Evaluations, unwrapped
from evalflows.specs.errors import InputError
from evalflows.specs.reference import version_of
from evalflows.store import Store
from evalflows.telemetry.views import observation_view, trace_view

OURS_ONLY = {
    "run_batched_evaluation": {"scope", "mapper", "composite_evaluators", "fetch_trace_fields"},
    "start_as_current_observation": {"self"},
    "run_experiment": {"self", "_snapshot"},
}
"""Arguments that Langfuse 5 has not, or not with a default."""
METHODS_HERE = [name for name in vars(Langfuse) if name[0] != "_" and name != "update_current_trace"]  # of version 4


def langfuse() -> Any:
    return pytest.importorskip("langfuse", reason="langfuse comes with the extra `others`")


def compare(ours: Callable[..., Any], theirs: Callable[..., Any], extra: set[str]) -> None:
    found = inspect.signature(theirs).parameters
    for name, parameter in inspect.signature(ours).parameters.items():
        if name in extra:
            continue
        same = found[name]
        assert (same.kind, same.default is same.empty) == (parameter.kind, parameter.default is parameter.empty), name
        if same.default is not same.empty:
            assert parameter.default == (tuple(same.default) if same.default == [] else same.default), name


def test_each_parameter_is_theirs_and_none_is_left_out() -> None:
    for name in ("__init__", *METHODS_HERE):
        ours, theirs = getattr(Langfuse, name), getattr(langfuse().Langfuse, name)
        extra = OURS_ONLY.get(name, set())
        compare(ours, theirs, extra)
        assert {*inspect.signature(ours).parameters} - extra == {*inspect.signature(theirs).parameters} - extra, name
    from langfuse._client.datasets import DatasetClient as Theirs

    compare(DatasetClient.run_experiment, Theirs.run_experiment, set())
    compare(get_client, langfuse().get_client, set())


def test_results_have_their_fields() -> None:
    for record in (Evaluation, EvaluatorInputs, EvaluatorStats, BatchEvaluationResumeToken):
        theirs = inspect.signature(getattr(langfuse(), record.__name__)).parameters
        assert {one.name for one in fields(record)} - {"scope"} == {*theirs}  # of version 4
    theirs = inspect.signature(langfuse().BatchEvaluationResult).parameters
    assert {*theirs} <= {*dir(BatchEvaluationResult)}
    from langfuse import experiment

    for ours in (ExperimentResult, ExperimentItemResult):
        theirs = inspect.signature(getattr(experiment, ours.__name__)).parameters
        assert {*theirs} <= {*dir(ours)}


def test_absent_names_are_theirs_and_say_what_to_use_instead() -> None:
    module = importlib.import_module("evalflows.compat.langfuse")
    for name in NAMES:
        with pytest.raises(ImportError, match=f"^evalflows.compat.langfuse.{name}: not supported here: ") as raised:
            getattr(module, name)
        assert "\n" not in str(raised.value)
    theirs = langfuse()
    assert {*module.__all__} <= {*dir(theirs)}
    modules = {name for name in dir(theirs) if inspect.ismodule(getattr(theirs, name))}  # others import more
    public = {name for name in dir(theirs) if name[0] != "_"} - modules - {"logger"}
    protocols = {name for name in public if name.startswith(("Mask", "OtelSpan")) or name.endswith("Function")}
    assert public - protocols - {*module.__all__} - {*NAMES} == {"KNOWN_LLM_INSTRUMENTATION_SCOPE_PREFIXES"}


def test_absent_methods_say_what_to_use_instead() -> None:
    client = get_client()
    for name in METHODS:
        with pytest.raises(AttributeError, match=rf"^Langfuse\.{name}: not supported here: "):
            getattr(client, name)
    theirs = {name for name in dir(langfuse().Langfuse) if name[0] != "_"}
    assert theirs <= {*METHODS} | {*METHODS_HERE} | {"api"}
    with pytest.raises(AttributeError, match=r"^api\.scores: not supported here: docs/guides/langfuse.md lists"):
        client.api.scores.list()  # type: ignore[attr-defined]


def test_options_without_a_meaning_here_are_accepted_and_others_refused() -> None:
    assert Langfuse(public_key="pk", secret_key="sk", host="http://127.0.0.1:9", sample_rate=0.5).auth_check()
    with pytest.raises(InputError, match=r"^Langfuse: mask: got .*, wanted None: everything is stored unchanged"):
        Langfuse(mask=lambda data: data)
    with pytest.raises(InputError, match=r"^run_batched_evaluation: _add_observation_scores_to_trace: got True"):
        get_client().run_batched_evaluation(
            mapper=lambda item: None, evaluators=[len], _add_observation_scores_to_trace=True
        )
    with pytest.raises(InputError, match=r"^create_dataset_item: status: got 'ARCHIVED', wanted None"):
        get_client().create_dataset_item(dataset_name="d", input=1, status="ARCHIVED")


def test_an_item_is_read_by_attributes_and_keys() -> None:
    call = {"name": "search", "arguments": {"query": "tide"}}
    row = observation(
        "t",
        output={"text": "ebb", "tool_calls": [call]},
        attributes={"langfuse.user.id": "u", "langfuse.observation.type": "agent", "gen_ai.usage.input_tokens": 3},
    )
    trace = Item(trace_view([row]))
    assert (trace.id, trace["user_id"], trace.get("nothing", 7)) == ("t", "u", 7)
    assert trace.output.tool_calls[0].arguments.query == trace["output"]["tool_calls"][0]["arguments"]["query"]
    (inner,) = trace.observations
    assert (inner.type, inner["start_time"], inner.is_root_observation) == ("AGENT", BEGAN, True)
    assert inner.usage_details == {"input": 3}
    assert trace.model_dump()["observations"][0]["id"] == "t-root"
    with pytest.raises(AttributeError, match=r"^trace: has no 'colour'; docs/guides/langfuse.md"):
        _ = trace.colour
    with pytest.raises(KeyError, match=r"has no 'colour'"):
        _ = trace["colour"]
    raw = Item(observation_view(row), raw=True)
    assert (raw.input, raw.output) == (
        "question",
        '{"text":"ebb","tool_calls":[{"arguments":{"query":"tide"},"name":"search"}]}',
    )


def test_what_is_wrapped_is_unwrapped_to_the_same_and_items_that_cannot_be_used_are_refused() -> None:
    values: list[Any] = ["x", 3, None, [], {}, {"a": 1}, {"output": 1}, {"output": {"output": 1}}, [{"b": 2}]]
    assert [unwrapped(wrapped(value, "output"), "output") for value in values] == values
    refused: list[tuple[Any, str]] = [
        ({"inputs": 1}, "data: got the field 'inputs', wanted only input, expected_output, metadata, id"),
        ({"expected_output": 1}, "data: got no input"),
        (3, "data: got 3, wanted a mapping or an object"),
    ]
    for item, said in refused:
        with pytest.raises(InputError, match=f"^{said}"):
            as_row(item, "data")


def test_a_composite_is_not_made_of_missing_evaluations() -> None:
    scored = views.Evaluation(name="a", value=1.0, data_type="BOOLEAN", metadata={"returned_as": "a"})
    none = views.Evaluation(name="b", value=None, status="not_applicable")
    assert complete(Evaluations([scored, none])) == [Evaluation(name="a", value=True, data_type="BOOLEAN")]
    failed = views.Evaluation(name="c", value=None, status="failed")
    with pytest.raises(ValueError, match=r"^c has no score for this item, so composites of it have none$"):
        complete(Evaluations([scored, failed]))


def test_the_version_of_an_adapted_function_is_that_of_the_user_s_code() -> None:
    def made(weight: float) -> Any:
        def judge(*, input: Any, output: Any, expected_output: Any, metadata: Any, evaluations: Any) -> float:  # noqa: A002
            return weight

        return judge

    def mapper(*, item: Any) -> Any:
        return item

    assert version_of(as_composite(made(1))) == version_of(as_composite(made(1)))
    assert version_of(as_composite(made(1))) != version_of(as_composite(made(2)))
    versions = [version_of(as_mapper(one, raw=raw)) for one in (mapper, lambda item: item.id) for raw in (True, False)]
    assert len({*versions}) == 4
    assert version_of(as_mapper(mapper, raw=True)) == versions[0]


def test_datasets_grow_item_by_item() -> None:
    client = get_client()
    created = client.create_dataset(name="tides", description="What is asked")
    assert (created.name, created.items, client.create_dataset(name="tides").id) == ("tides", [], created.id)
    with pytest.raises(InputError, match=r"^create_dataset: 'tides' exists with the description 'What is asked'"):
        client.create_dataset(name="tides", description="Other")
    first = client.create_dataset_item(dataset_name="tides", input={"q": "ebb?"}, expected_output="out", id="ebb")
    before = datetime.now(UTC)
    client.create_dataset_item(dataset_name="tides", input="flood?", metadata={"hard": True})
    client.create_dataset_item(dataset_name="tides", input="flood?", metadata={"hard": True})
    client.create_dataset_item(dataset_name="tides", input={"q": "ebb?"}, expected_output="outward", id="ebb")
    items = client.get_dataset("tides").items
    assert [(one.id == "ebb", one.input, one.expected_output, one.metadata) for one in items] == [
        (True, {"q": "ebb?"}, "outward", None),
        (False, "flood?", None, {"hard": True}),
    ]
    assert items[0].input.q == "ebb?" and first.expected_output == "out"
    assert [one.expected_output for one in client.get_dataset("tides", version=before).items] == ["out"]
    with pytest.raises(InputError, match=r"^dataset 'currents': not in the store, wanted one of: tides$"):
        client.get_dataset("currents")
    with pytest.raises(AttributeError, match=r"^DatasetItem\.run: not supported here: "):
        items[0].run  # type: ignore[attr-defined]  # noqa: B018


def test_stored_traces_are_read(store: Store) -> None:
    tags = {"langfuse.trace.tags": ["production"]}
    write(store, [*traces(3), observation("tagged", began=BEGAN + timedelta(days=1), attributes=tags)])
    api = get_client().api
    assert api.trace.get("t1").output == "answer 1"
    with pytest.raises(InputError, match=r"^trace 'none': not in the store "):
        api.trace.get("none")
    assert [one.id for one in api.trace.list(limit=2).data] == ["tagged", "t2"]
    assert [one.id for one in api.trace.list(limit=2, page=2).data] == ["t1", "t0"]
    assert [one.id for one in api.trace.list(tags="production").data] == ["tagged"]
    only = '[{"type": "arrayOptions", "column": "tags", "operator": "any of", "value": ["production"]}]'
    assert [one.id for one in api.trace.list(filter=only).data] == ["tagged"]
    assert api.trace.list(filter=only, name="nothing").data == []
    day = BEGAN + timedelta(hours=1)
    assert [one.id for one in api.trace.list(name="user-query", to_timestamp=day, limit=1).data] == ["t2"]
    assert api.trace.list(user_id="nobody").data == []
    with pytest.raises(InputError, match=r"^list: order_by: got"):
        api.trace.list(order_by="name")
    with pytest.raises(AttributeError, match=r"^Page\.meta: not supported here"):
        _ = api.trace.list().meta  # type: ignore[attr-defined]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"data": "capitals"}, "^data: got str, wanted a list of items"),
    ({"data": [{"input": 1, "colour": 2}]}, "^data: item 1: got the field 'colour'"),
    ({"task": lambda: None}, "^task: 'function': got an unexpected keyword argument 'item', wanted a function of item"),
    ({"task": 3}, "^task: got int, wanted a function of item"),
    ({"evaluators": [lambda colour: 1]}, "asks for 'colour'"),
    ({"composite_evaluator": lambda *, output: 1}, "^composite_evaluator: 'function': .*evaluations$"),
    ({"run_evaluators": [lambda runs: 1]}, "^run_evaluators: 'function': .*item_results$"),
    ({"colour": 1}, "^run_experiment: got an unexpected keyword argument 'colour', wanted only name, run_name, "),
    ({"experiment_id": "e"}, "^run_experiment: experiment_id: got 'e', wanted None"),
]


def test_arguments_that_cannot_be_used_are_refused() -> None:
    for settings, said in REFUSED:
        given: dict[str, Any] = {"name": "n", "data": [{"input": 1}], "task": lambda *, item: item} | settings
        with pytest.raises(InputError, match=said) as raised:
            get_client().run_experiment(**given)
        assert "\n" not in str(raised.value)
