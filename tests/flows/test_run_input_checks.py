"""Checks of a run's dataset and spec, before anything is paid."""

from typing import Any

import pytest
from catalog_rows import rows
from planted_difference import ROWS, N, always, number, spec, targets

from evalflows import evaluate, run
from evalflows.specs import InputError
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")


def test_an_expectation_that_cannot_be_checked_fails() -> None:
    unique = "expect_column_values_to_be_unique"
    for expectation, message in (
        ({"type": "expect_nonsense"}, "expectation 'expect_nonsense': expect_nonsense not found"),
        ({"type": unique, "kwargs": {"column": "inputs.nowhere"}}, "could not be checked: .*nowhere"),
        ({"type": unique, "kwargs": {}}, "column field required"),
    ):
        with pytest.raises(InputError, match=message):
            run(spec(dataset={"rows": ROWS, "expectations": [expectation]}))
    assert rows("select count(*) from experiments") == [(0,)]


def test_a_snapshot_written_by_another_program_is_checked() -> None:
    from dataclasses import replace

    from evalflows.store.records import SnapshotRow
    from evalflows.store.snapshots import to_examples

    store, examples = Store(), to_examples(enumerate(ROWS, start=1), "rows")
    spoilt = [replace(row, snapshot_id="snap-spoilt", reference_outputs="{not json") for row in examples]
    store.publish("examples", "snap-spoilt", spoilt)
    store.publish("snapshots", "snap-spoilt", [SnapshotRow(snapshot_id="snap-spoilt", n_examples=N, splits="{}")])
    with pytest.raises(InputError, match=r"wanted reference_outputs: column values to be json parseable; 40 of 40"):
        run(spec(dataset={"snapshot": "snap-spoilt"}))


@pytest.mark.slow
def test_splits_and_samples_are_the_same_in_every_run() -> None:
    halves = [row | {"split": "test" if i % 2 else "dev"} for i, row in enumerate(ROWS)]
    drawn = {"rows": halves, "name": "halves", "splits": ["test"], "sample": 7, "seed": 3}
    first, second = (run(spec(dataset=drawn, targets=targets(target=always)))[0] for _ in range(2))
    seen = [rows("select example_id from outputs where experiment_id = ? order by 1", one) for one in (first, second)]
    assert seen[0] == seen[1] and len(seen[0]) == 7
    assert {number(identity) % 2 for (identity,) in seen[0]} == {1}
    assert rows("select n_examples from datasets where name = 'halves'") == [(N,)], "the name stands for the whole"


JUDGE = {"use": "judges:says_correct", "connection": "x"}
HTTP = {"kind": "http", "url": "http://127.0.0.1:1"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"targets": [{"kind": "recorded", "column": "nothing"}]}, r"has no 'nothing'; no answer for any of 40 examples"),
    (
        {"targets": [{"kind": "recorded", "experiment": "none"}]},
        r"experiment 'none': not in .*, which has no experiment",
    ),
    ({"targets": [{"kind": "recorded", "path": "nowhere.jsonl"}]}, "cannot be read: No such file"),
    ({"targets": [{"kind": "python", "function": "judges:nothing"}]}, "'judges' has no 'nothing'"),
    (
        {"targets": [HTTP | {"body": {"q": "{nothing}"}}]},
        r"target 'target': body asks for \{nothing\}, example 'q0' has question",
    ),
    (
        {"targets": [HTTP | {"headers": {"X-Key": "${EVALFLOWS_NOT_SET}"}}]},
        "target 'target': headers: X-Key: the environment variable EVALFLOWS_NOT_SET is not set",
    ),
    ({"targets": [{"kind": "chat", "connection": "local", "messages": "turns"}]}, "messages are read from 'turns'"),
    ({"targets": [{"kind": "chat", "connection": "local", "user": "{query}"}]}, "asks for {query}"),
    ({"evaluators": ["exact_mach"]}, "wanted 'module:name' or exact_match"),
    ({"evaluators": ["nowhere:judge"]}, "cannot import 'nowhere'"),
    ({"evaluators": ["judges:wants_the_moon"]}, "asks for 'moon', wanted any of inputs, outputs"),
    ({"evaluators": [JUDGE]}, "connection 'x': wanted one of"),
    ({"evaluators": [{"use": "exact_match", "controls": 5}]}, "evaluator 'exact_match': controls need a model"),
    ({"composites": [{"name": "c", "weights": {"exact_mach": 1}}]}, "composite 'c': no evaluator gives 'exact_mach'"),
    ({"composites": [{"name": "c", "weights": {"latency": 1}}]}, "composite 'c': latency has no bounds"),
    ({"summary_evaluators": ["keyword_safety"]}, "evaluator 'keyword_safety': asks for 'blocked'"),
    ({"dataset": {"rows": ROWS, "splits": ["none"]}}, "dataset: splits: got"),
    ({"dataset": {"path": "${EVALFLOWS_NOT_SET}/x.csv"}}, "EVALFLOWS_NOT_SET is not set"),
    ({"dataset": {"path": "rows.txt"}}, "rows.txt: got .txt, wanted one of .jsonl"),
    ({"dataset": {"name": "nowhere"}}, "not in the store"),
    ({"dataset": {"function": "judges:upper"}}, "function 'judges:upper': TypeError"),
    ({"dataset": {"rows": ROWS, "expectations": "no-suite.json"}}, "no-suite.json: cannot be read"),
]


def test_bad_input_is_refused_before_anything_is_written() -> None:
    for changes, message in BAD:
        with pytest.raises(InputError, match=message) as caught:
            run(spec(**changes))
        assert "\n" not in str(caught.value)
    assert rows("select count(*) from snapshots") == [(0,)]


def test_functions_of_this_process_are_refused_for_an_engine_with_others() -> None:
    """Each is named in one line, before a cluster is started or anything is called."""
    called: list[str] = []

    def target(question: str) -> str:
        called.append(question)
        return question

    def short(outputs: dict[str, Any]) -> bool:
        return len(str(outputs)) < 9

    rest = r"got a function that only this process has; with task_runner dask wanted 'module:name', which its .* import"
    with pytest.raises(InputError, match=rf"^target 'target': {rest}$"):
        evaluate(target, ROWS, ["contains"], task_runner="dask")
    chat = {"kind": "python", "name": "up", "function": "judges:upper"}
    with pytest.raises(InputError, match=rf"^evaluator 'short': {rest}$"):
        evaluate(chat, ROWS, ["contains", short], task_runner={"kind": "dask", "processes": 2})
    assert called == []
    assert rows("select count(*) from experiments") == [(0,)]
