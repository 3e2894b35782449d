"""A gate that looks after each batch: it stops when it has decided, and does not find by looking what is not there."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from endpoint import Endpoint, completion, serving
from gated import decided, drawn, fallen, gated, rows
from matched import asked

from evalflows import approve, gate, run
from evalflows.engine.order import in_running_order
from evalflows.reports.decisions import decisions_named
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import IncompleteError
from evalflows.store.snapshots import to_examples
from evalflows.store.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

BATCHED = {"non_inferiority": {"exact_match": 0.05}, "batch": 50}


def asked_of(endpoint: Endpoint, folder: Path, margin: float, n: int) -> dict[str, Any]:
    """A gate in batches on answers of a model, which is asked by two prompts."""
    chat = {"kind": "chat", "connection": "mock"}
    return gated(folder, [BATCHED | {"non_inferiority": {"contains": margin}}], old=[True] * n) | {
        "targets": [chat | {"name": name, "user": f"{name} {{q}}"} for name in ("old", "new")],
        "evaluators": ["contains"],
        "connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}},
    }


@pytest.mark.slow
def test_it_stops_when_it_has_decided_and_says_what_that_saved(tmp_path: Path) -> None:
    """A model that is asked for each answer, and one prompt that it answers wrong two times in ten."""

    def answer(request: Any) -> Any:
        text = request["messages"][-1]["content"]
        number = int(text.split()[-1].rstrip("?"))
        return completion("no" if "new" in text and number % 10 < 2 else "yes")

    with serving(Endpoint(answer=answer)) as endpoint:
        one = decided(asked_of(endpoint, tmp_path, 0.05, 600))
        assert one.conclusion == "FAIL"
        assert one.interim_analyses is not None and 1 < one.interim_analyses < 6
        seen = 50 * one.interim_analyses
        assert endpoint.calls == 2 * seen
    assert one.calls_saved == 2 * (600 - seen)
    assert asked("select distinct state, reason, answered from experiment_overview") == [
        ("incomplete", f"stopped after {seen} of 600 examples: the gates had decided", seen)
    ]
    columns = "n_pairs, candidate_missing, minimum_detectable_effect"
    verdicts = asked(f"select {columns} from verdicts where decision_id = '{one.decision_id}'")
    assert verdicts == [(seen, 0, None)], "what has not run is not missing"


@pytest.mark.slow
def test_out_of_budget_it_says_what_it_has_seen(tmp_path: Path) -> None:
    with serving(Endpoint(answer=lambda request: completion("yes"))) as endpoint:
        spec = ExperimentSpec.model_validate(asked_of(endpoint, tmp_path, 0.04, 300) | {"max_calls": 130})
        with pytest.raises(IncompleteError, match="the budget is spent") as error:
            gate(spec)
        assert endpoint.calls == 130
        (one,) = decisions_named(Store(), error.value.decisions)
        assert (one.conclusion, one.interim_analyses, one.calls_saved) == ("NOT ENOUGH EVIDENCE", 1, None)
        assert any("is incomplete: not done: " in note for note in one.notes)
        (group,) = {row[0] for row in asked("select run_group from experiments")}
        whole = spec.model_copy(update={"max_calls": 2000})
        (one,) = decisions_named(Store(), gate(whole, group))
        assert endpoint.calls == 600
    assert (one.conclusion, one.interim_analyses, one.calls_saved) == ("PASS", 6, 0)


@pytest.mark.slow
def test_what_is_missing_counts_against_it_at_every_look(tmp_path: Path) -> None:
    old = drawn(200, 0.8)
    fields = gated(tmp_path, [{"non_inferiority": {"half_fails": 0.1}, "batch": 50}], old=old, new=old)
    one = decided(fields | {"evaluators": ["odd_evaluators:half_fails"]})
    assert (one.conclusion, one.interim_analyses) == ("NOT ENOUGH EVIDENCE", 4)


@pytest.mark.slow
def test_it_says_how_many_have_run_though_it_decided_on_whole_clusters(tmp_path: Path) -> None:
    old = drawn(400, 0.9)
    fields = gated(tmp_path, [BATCHED], old=old, new=fallen(old, 0.5))
    fields["dataset"]["rows"] = [row | {"cluster": f"c{i // 3}"} for i, row in enumerate(fields["dataset"]["rows"])]
    decided(fields)
    ((reason, answered),) = asked("select distinct reason, answered from experiment_overview")
    assert answered % 3 and reason.startswith(f"stopped after {answered} of 400 examples")


@pytest.mark.slow
def test_resumed_it_goes_on_with_what_did_not_run(tmp_path: Path) -> None:
    old = drawn(400, 0.9)
    fields = gated(tmp_path, [BATCHED], old=old, new=fallen(old, 0.5))
    one = decided(fields)
    assert (one.conclusion, one.interim_analyses) == ("FAIL", 1)
    (group,) = {row[0] for row in asked("select run_group from experiments")}
    run(ExperimentSpec.model_validate(fields), group)
    assert asked("select distinct state, answered from experiment_overview") == [("completed", 400)]
    assert asked("select conclusion, interim_analyses, is_newest from gate_decisions order by confirmed_at") == [
        ("FAIL", 1, False),
        ("FAIL", 8, True),
    ]


@pytest.mark.slow
def test_floors_are_not_decided_by_the_first_mean(tmp_path: Path) -> None:
    """By the mean of 50 it would pass or fail; there is nothing to be sure of until all has run."""
    fields = gated(tmp_path, [{"thresholds": {"exact_match": 0.8}, "batch": 50}], new=drawn(400, 0.81))
    one = decided(fields)
    assert (one.conclusion, one.interim_analyses) == ("PASS", 8)


@pytest.mark.slow
def test_a_floor_is_not_passed_by_leaving_out_what_falls_below_it(tmp_path: Path) -> None:
    old = drawn(200, 0.8)
    (first,) = run(ExperimentSpec.model_validate(gated(tmp_path, [], v1=old)))
    approve(first)
    fields = gated(tmp_path, [{"thresholds": {"exact_match": 0.7}, "batch": 50}], v2=fallen(old, 0.3))
    rows = fields["dataset"]["rows"]
    fields["dataset"]["rows"] = [row for row, is_right in zip(rows, fallen(old, 0.3), strict=True) if is_right]
    one = decided(fields)
    assert (one.conclusion, "which interim analyses cannot count" in one.summary) == ("NOT ENOUGH EVIDENCE", True)


@pytest.mark.slow
def test_gone_on_with_in_batches_what_ran_in_the_dataset_s_order_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    """The wrong answers stand first: by the first fifty, all were lost."""
    old = [True] * 200
    plain = gated(tmp_path, [], old=old, new=[False] * 40 + [True] * 160) | {"run_key": "k"}
    run(ExperimentSpec.model_validate(plain))
    one = decided(plain | {"gates": [BATCHED | {"non_inferiority": {"exact_match": 0.25}}]})
    assert (one.conclusion, one.interim_analyses) == ("NOT ENOUGH EVIDENCE", 1)


def test_examples_run_in_an_order_that_is_drawn_and_clusters_stay_whole(make: Any) -> None:
    row, plain = make("experiments", seed=0), to_examples(list(enumerate(rows(100), start=1)), "here")
    order = [example.position for example in in_running_order(row, plain)]
    assert sorted(order) == list(range(100))
    assert abs(np.corrcoef(order, range(100))[0, 1]) < 0.3
    clustered = to_examples(((i, one | {"cluster": f"c{i % 7}"}) for i, one in enumerate(rows(100), start=1)), "here")
    names = [example.cluster for example in in_running_order(row, clustered)]
    assert sum(one != other for one, other in itertools.pairwise(names)) == 6
