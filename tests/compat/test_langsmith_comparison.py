"""LangSmith's pairwise evaluation: evaluators of every form, the results' shapes, and what is kept of them."""

import asyncio
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from plain_flows import plain_flows
from user_places import without_places

from evalflows.compat.langsmith import Client, aevaluate, evaluate
from evalflows.compat.langsmith.comparative import (
    ComparativeExperimentResults,
    comparison_evaluator,
    evaluate_comparative,
)
from evalflows.compat.langsmith.evaluation import ComparisonEvaluationResult, ExperimentResults
from evalflows.compat.langsmith.schemas import Example, Run
from evalflows.evaluators.score import Preference
from evalflows.specs import InputError
from evalflows.specs.errors import IncompleteError
from evalflows.store import Store

Runs = list[Run]
Pair = tuple[ExperimentResults, ExperimentResults]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ExperimentResults, ExperimentResults]:
    """A store with two experiments, to copy."""
    root = tmp_path_factory.mktemp("letters") / "store"
    with pytest.MonkeyPatch.context() as patch, plain_flows():
        patch.setenv("EVALFLOWS_STORE", str(root))
        patch.setenv("EVALFLOWS_SPOOL", str(root.parent / "spool"))
        client = Client()
        client.create_dataset("letters")
        rows = [{"inputs": {"q": f"q{i}"}, "outputs": {"a": f"Q{i}"}} for i in range(6)]
        client.create_examples(dataset_name="letters", examples=rows)
        first = evaluate(upper, data="letters", experiment_prefix="upper")
        return root, first, evaluate(longer, data="letters", experiment_prefix="longer")


@pytest.fixture
def two(made: tuple[Path, ExperimentResults, ExperimentResults], store_root: Path, without_prefect: None) -> Pair:
    """This test's store has these two."""
    root, *pair = made
    shutil.copytree(root, store_root)
    return pair[0], pair[1]


@pytest.fixture
def client(two: Pair) -> Client:
    return Client()


def upper(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"a": inputs["q"].upper()}


def longer(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"a": inputs["q"].upper() + "!" * int(inputs["q"][1:])}


def lower(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"a": inputs["q"].lower()}


def longest(outputs: list[dict[str, Any]]) -> list[int]:
    """The longer answer is better."""
    return [len(one["a"]) for one in outputs]


def length(outputs: list[dict[str, Any]]) -> list[int]:
    """By a name that every run has a measure of."""
    return longest(outputs)


def by_id(runs: Runs, example: Example) -> dict[str, Any]:
    assert all(isinstance(run, Run) and run.reference_example_id == example.id for run in runs)
    scores = {run.id: float(run.outputs == example.outputs) for run in runs}
    comments = {uuid.UUID(run.id): f"{(run.outputs or {})['a']}" for run in runs}
    return {"key": "right", "scores": scores, "comment": comments}


def by_uuid(ours: Runs, theirs: Example) -> ComparisonEvaluationResult:
    scores: dict[Any, Any] = {uuid.UUID(run.id): len((run.outputs or {})["a"]) > 2 for run in ours}
    return ComparisonEvaluationResult(key="bang", scores=scores, comment=theirs.inputs["q"])


@comparison_evaluator
async def decorated(inputs: dict[str, Any], outputs: list[dict[str, Any]], reference_outputs: dict[str, Any]) -> Any:
    await asyncio.sleep(0)
    assert inputs["q"].upper() == reference_outputs["a"]
    return {"scores": [len(one["a"]) for one in outputs], "comment": "counted"}


def broken(inputs: dict[str, Any], outputs: list[Any]) -> list[int] | None:
    if inputs["q"] == "q1":
        raise ValueError("not this one")
    return [1, 0] if inputs["q"] == "q2" else None


@pytest.mark.slow
def test_every_form_of_evaluator_and_what_the_results_are(client: Client, two: Pair) -> None:
    names = tuple(one.experiment_name for one in two)
    results = client.evaluate(
        names,
        evaluators=[longest, by_id, by_uuid, decorated, broken],
        randomize_order=True,
        max_concurrency=4,
        experiment_prefix="forms",
        description="all forms",
        metadata={"commit": "abc"},
    )
    assert isinstance(results, ComparativeExperimentResults)
    about = results.comparative_experiment
    assert re.fullmatch(r"forms-[0-9a-f]{8}", about.name)
    assert (about.description, about.metadata) == ("all forms", {"commit": "abc"})
    assert about.reference_dataset_id == client.read_dataset(dataset_name="letters").id
    assert [one["name"] for one in about.experiments_info or []] == [*names]

    listed = list(results)
    assert len(listed) == len(results) == 6
    for place, row in enumerate(listed):
        assert row["example"].inputs == {"q": f"q{place}"}
        found = row["evaluation_results"]
        assert found == results[row["example"].id]
        old, new = found["runs"]
        assert (old.outputs, new.outputs) == ({"a": f"Q{place}"}, {"a": f"Q{place}" + "!" * place})
        assert (old.session_id, new.session_id) == tuple(one.experiment_id for one in two)
        assert found["feedback.longest"].scores == {old.id: 2, new.id: 2 + place}
        assert found["feedback.right"].scores == {old.id: 1, new.id: place == 0}
        assert {*found["feedback.right"].comment.split("\n")} == {f"Q{place}", f"Q{place}" + "!" * place}
        assert found["feedback.bang"] == ComparisonEvaluationResult(
            key="bang", scores={old.id: 0, new.id: place > 0}, comment=f"q{place}"
        )
        assert found["feedback.decorated"].scores == {old.id: 2, new.id: 2 + place}
    failed, shown = (listed[place]["evaluation_results"] for place in (1, 2))
    assert without_places(failed["feedback.broken"].comment) == "ValueError: not this one"
    assert [*failed["feedback.broken"].scores.values()] == [None, None], "a judgement that failed is never zero"
    assert sorted(shown["feedback.broken"].scores.values()) == [0, 1]

    kept = "select metric, status, winner, count(*) from comparisons where metric in ('right', 'broken') group by all"
    assert {row for row in rows(kept) if row[0] == "right"} == {
        ("right", "scored", "left", 5),
        ("right", "scored", "tie", 1),
    }
    assert {row[1]: row[3] for row in rows(kept) if row[0] == "broken"} == {
        "scored": 1,
        "failed": 1,
        "not_applicable": 4,
    }
    assert {*results.to_pandas()["metric"]} == {"longest", "right", "bang", "decorated", "broken"}

    old, new = shown["runs"]
    said = {
        (one.run_id, one.key): one for one in client.list_feedback(run_ids=[old.id, new.id], feedback_key="longest")
    }
    assert {key: one.score for key, one in said.items()} == {(old.id, "longest"): 2, (new.id, "longest"): 4}
    assert {one.comparative_experiment_id for one in said.values()} == {about.id}
    missing = list(client.list_feedback(run_ids=[run.id for run in failed["runs"]], feedback_key="broken"))
    assert [(one.score, without_places(one.comment), one.extra) for one in missing] == 2 * [
        (None, "ValueError: not this one", {"error": True})
    ]


@pytest.mark.slow
def test_the_first_named_is_shown_first_unless_the_order_is_drawn(two: Pair) -> None:
    seen: list[str] = []

    def first_one(outputs: list[dict[str, Any]]) -> list[int]:
        seen.append(outputs[0]["a"])
        return [1, 0]

    old, new = two
    results = evaluate((new, old), evaluators=[first_one])
    assert seen == [f"Q{place}" + "!" * place for place in range(6)], "one at a time, in the dataset's order"
    assert {*rows("select shown_first, winner from comparisons")} == {("right", "right")}
    for row in results:
        new_run, old_run = row["evaluation_results"]["runs"]
        assert (new_run.session_id, old_run.session_id) == (new.experiment_id, old.experiment_id)
        assert row["evaluation_results"]["feedback.first_one"].scores == {new_run.id: 1, old_run.id: 0}


@pytest.mark.slow
def test_of_three_experiments_every_two_are_compared(
    client: Client, two: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_two(runs: Runs) -> list[int]:
        assert len(runs) == 2
        if {(run.outputs or {})["a"] for run in runs} == {"q1", "Q1"}:
            raise OSError("gone")
        return [(run.outputs or {})["a"][0] == "Q" for run in runs]

    def gone(runs: Runs) -> list[int]:
        raise OSError("gone")

    with pytest.raises(IncompleteError, match=r"^nothing-\w+: all 6 judgements failed: OSError: gone"):
        evaluate_comparative(two, evaluators=[gone], experiment_prefix="nothing")
    assert ": 6 of 6 judgements by gone failed: OSError: gone" in capsys.readouterr().err
    third = evaluate(lower, data="letters")
    asked: list[int] = []

    async def ranked(inputs: dict[str, Any], outputs: list[dict[str, Any]]) -> dict[str, Any]:
        asked.append(len(outputs))
        return {"key": "ranked", "scores": [*range(len(outputs))], "comment": inputs["q"]}

    results = evaluate_comparative([*two, third], evaluators=[of_two, longest, ranked], max_concurrency=0)
    assert asked == [3] * 6, "all at once, and each example once"
    ranks = next(iter(results))["evaluation_results"]["feedback.ranked"]
    assert ([*ranks.scores.values()], ranks.comment) == ([0, 1, 2], "q0")
    first, other = (row["evaluation_results"] for row in list(results)[:2])
    of_each = [first["feedback.of_two"].scores[run.id] for run in first["runs"]]
    assert of_each == [1, 1, 0], "the mean over its pairs"
    assert first["feedback.of_two"].comment == "mean of 3 pairs, 0 missing"
    assert other["feedback.of_two"].comment == "mean of 2 pairs, 1 missing"
    assert [other["feedback.of_two"].scores[run.id] for run in other["runs"]] == [1, 1, 0]
    assert [other["feedback.longest"].scores[run.id] for run in other["runs"]] == [2, 3, 2]
    assert len(results.to_pandas()) == 6 * 3 * 3


@pytest.mark.slow
def test_who_failed_has_lost_and_nobody_is_asked(client: Client) -> None:
    def flaky(inputs: dict[str, Any]) -> dict[str, Any]:
        if inputs["q"] in ("q0", "q1"):
            raise OSError("gone")
        return upper(inputs)

    def never(inputs: dict[str, Any]) -> dict[str, Any]:
        if inputs["q"] == "q1":
            raise OSError("gone")
        return upper(inputs)

    def asked(inputs: dict[str, Any], outputs: list[dict[str, Any]]) -> Preference:
        assert inputs["q"] not in ("q0", "q1")
        return Preference(winner="second")

    pair = evaluate(flaky, data="letters"), evaluate(never, data="letters")
    found = [row["evaluation_results"] for row in evaluate(pair, evaluators=[asked])]
    scores = [[one["feedback.asked"].scores[run.id] for run in one["runs"]] for one in found]
    assert scores == [[0, 1], [0.5, 0.5], *(4 * [[0, 1]])]
    comment = without_places(found[0]["feedback.asked"].comment)
    assert comment.startswith("flaky") and comment.endswith(" failed: OSError: gone")
    assert [without_places(run.error) for run in found[0]["runs"]] == ["OSError: gone", ""]


@pytest.mark.slow
def test_repetitions_and_nested_runs(client: Client) -> None:
    from evalflows.compat.langsmith import traceable

    @traceable
    def inner(q: str) -> str:
        return q.upper()

    def outer(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"a": inner(inputs["q"])}

    def steps(runs: Runs) -> list[int]:
        return [len(run.child_runs) for run in runs]

    twice = evaluate(outer, data="letters", num_repetitions=2)
    pair = (twice, evaluate(upper, data="letters", num_repetitions=3))
    for nested in (True, False):
        results = evaluate(pair, evaluators=[steps], load_nested=nested)
        for row in results:
            runs = row["evaluation_results"]["runs"]
            assert len(runs) == 4, "the repetitions that both have"
            found = row["evaluation_results"]["feedback.steps"]
            assert found.comment == "mean of 2 pairs, 0 missing"
            assert [found.scores[run.id] for run in runs] == [nested, nested, 0, 0]


@pytest.mark.slow
def test_an_evaluator_of_langsmiths_own_making(two: Pair) -> None:
    theirs = pytest.importorskip("langsmith.evaluation.evaluator")

    @theirs.comparison_evaluator
    def of_theirs(runs: Runs, example: Example) -> Any:
        scores = {run.id: len((run.outputs or {})["a"]) for run in runs}
        return theirs.ComparisonEvaluationResult(key="theirs", scores=scores, comment=example.inputs["q"])

    @theirs.comparison_evaluator
    async def by_place(outputs: list[dict[str, Any]]) -> list[int]:
        return [len(one["a"]) for one in outputs]

    results = evaluate(two, evaluators=[of_theirs, by_place], randomize_order=True)
    found = [*results][2]["evaluation_results"]
    old, new = found["runs"]
    assert found["feedback.theirs"].scores == found["feedback.by_place"].scores == {old.id: 2, new.id: 4}
    assert found["feedback.theirs"].comment == "q2"
    versions = dict(rows("select distinct evaluator, evaluator_version from comparisons"))
    assert {*versions} == {"of_theirs", "by_place"} and len({*versions.values()}) == 2


def test_an_evaluator_can_be_called_without_a_comparison() -> None:
    runs = [Run(id="1" * 32, outputs={"a": "x"}), Run(id="2" * 32)]
    example = Example(id="e", inputs={"q": "q"}, outputs={"a": "Q"})

    @comparison_evaluator
    def answered(outputs: list[dict[str, Any]]) -> list[int]:
        return [len(one) for one in outputs]

    @comparison_evaluator
    def said(runs: Runs, example: Example) -> str:
        return "B"

    @comparison_evaluator
    def several(outputs: list[dict[str, Any]]) -> Any:
        return {"results": [{"key": "x", "scores": [1, 0]}, {"key": "y", "scores": [1, 0]}]}

    scores = {"1" * 32: 1, "2" * 32: 0}
    assert answered(runs) == answered.compare_runs(runs, example)
    assert answered(runs) == ComparisonEvaluationResult(key="answered", scores=scores)
    assert said(runs, example).scores == {"1" * 32: 0, "2" * 32: 1}
    with pytest.raises(ValueError, match="got 2 preferences, wanted one"):
        several(runs)
    assert (answered.is_async, decorated.is_async, repr(said)) == (False, True, "<DynamicComparisonRunEvaluator said>")
    full = [Run(id="1" * 32, outputs={"a": "Q"}), Run(id="2" * 32, outputs={"a": "Q!"})]
    expected = {"1" * 32: 1, "2" * 32: 2}
    assert decorated.compare_runs(full, example).scores == expected
    assert asyncio.run(decorated.acompare_runs(full, example)).scores == expected
    assert asyncio.run(answered.acompare_runs(runs)).scores == scores


@pytest.mark.slow
def test_how_many_pairs_are_judged_at_once(two: Pair) -> None:
    for given, wanted in (({}, 5), ({"max_concurrency": 0}, 1)):
        about = evaluate(two, evaluators=[length], **given).comparative_experiment
        settings = "select (spec ->> 'max_concurrency')::int from source.comparison_sets where comparison_id = ?"
        assert Store().query(settings, [about.id]) == [(wanted,)]
    assert rows("select distinct metric from comparisons") == [("length",)]
    again = asyncio.run(aevaluate(two, evaluators=[decorated], randomize_order=True))
    assert again.to_pandas()["winner"].to_list() == ["tie"] + 5 * ["longer"]


@pytest.mark.slow
def test_what_cannot_be_is_refused_before_anything_is_called(two: Pair) -> None:
    for arguments, message in (
        ({"data": "letters"}, "^evaluate: data: got 'letters', wanted None: an experiment has its own"),
        ({"num_repetitions": 2}, "num_repetitions: got 2, wanted 1"),
        ({"both_orders": True}, "got 'both_orders', wanted only load_nested and randomize_order"),
        ({"target": (*two, "x")}, "target: got 3 experiments, wanted 2; evaluate_comparative takes more"),
        ({"target": (two[0], 3)}, "evaluate_comparative: experiments: got int, wanted an experiment"),
        ({"target": (two[0], "nowhere")}, "experiment 'nowhere': not in"),
        ({"target": (two[0], two[0])}, "which is one experiment, wanted at least two"),
        ({"evaluators": [3]}, "evaluators: got int, wanted a function or an object with compare_runs"),
        ({"evaluators": [lambda a, b, c: None]}, "asks for 'a', wanted any of inputs, outputs"),
    ):
        given: dict[str, Any] = {"target": two, "evaluators": [longest]} | arguments
        with pytest.raises(InputError, match=message) as raised:
            evaluate(given.pop("target"), **given)
        assert "\n" not in str(raised.value)
    assert Store().query("select count(*) from source.comparison_sets") == [(0,)]
