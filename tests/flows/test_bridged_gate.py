"""A baseline that another judge judged: refused, or bridged by the newer judge on a sample of the older answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gated import drawn, fallen, gated

from evalflows import approve, gate, run
from evalflows.reports.decisions import Decision, decisions_named
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import GateFailedError
from evalflows.store import connect
from evalflows.store.parquet import Store

pytestmark = pytest.mark.usefixtures("prefect_api")

BRIDGED = {"non_inferiority": {"exact_match": 0.05}, "recalibrate": {"sample": 150}}


def decided(fields: dict[str, Any]) -> Decision:
    spec = ExperimentSpec.model_validate(fields)
    try:
        (one,) = decisions_named(Store(), gate(spec))
    except GateFailedError as error:
        (one,) = decisions_named(Store(), error.decisions)
    return one


def rows(query: str) -> list[tuple[Any, ...]]:
    with connect() as catalog:
        return catalog.execute(query).fetchall()


def judged_otherwise(fields: dict[str, Any]) -> dict[str, Any]:
    """By a judge who finds every tenth right answer wrong."""
    return fields | {"evaluators": [{"use": "odd_evaluators:strict", "name": "exact_match"}]}


@pytest.fixture
def old(tmp_path: Path) -> Any:
    """The baseline: judged by the lenient judge, approved."""
    right = drawn(600, 0.8)
    (first,) = run(ExperimentSpec.model_validate(gated(tmp_path, [], v1=right)))
    approve(first)
    return right


@pytest.mark.slow
def test_the_same_answers_pass_though_the_newer_judge_is_stricter(tmp_path: Path, old: Any) -> None:
    one = decided(judged_otherwise(gated(tmp_path, [BRIDGED], v2=old)))
    assert one.conclusion == "PASS"
    ((difference, low, high, pairs, method),) = rows(
        "select difference, ci_low, ci_high, n_pairs, method from verdicts where decision_id is not null"
    )
    assert low <= 0 <= high
    assert -0.03 < difference < 0.03  # the judges differ by 0.08
    assert pairs == 150
    assert method.startswith("recalibrated: ")
    assert rows("select answered from experiment_overview where name = 'app-recalibrate'") == [(150,)]


@pytest.mark.slow
def test_worse_answers_fail_by_the_newer_judge(tmp_path: Path, old: Any) -> None:
    one = decided(judged_otherwise(gated(tmp_path, [BRIDGED], v2=fallen(old, 0.25))))
    assert one.conclusion == "FAIL"
    assert one.summary.startswith("exact_match is worse by more than 0.05: -0.2")


@pytest.mark.slow
def test_a_sample_that_was_judged_anew_is_not_judged_again(tmp_path: Path, old: Any) -> None:
    decided(judged_otherwise(gated(tmp_path, [BRIDGED], v2=old)))
    decided(judged_otherwise(gated(tmp_path, [BRIDGED], v3=fallen(old, 0.01))))
    assert rows("select count(*) from experiments where name = 'app-recalibrate'") == [(1,)]


@pytest.mark.slow
def test_a_bridge_is_as_sure_as_a_gate_that_judged_all_anew_is_at_least_nearly(tmp_path: Path, old: Any) -> None:
    """What the older judge says of the rest makes the interval narrower than the sample alone would have it."""
    changed = fallen(old, 0.05) | (~old & drawn(600, 0.3, seed=3))
    decided(judged_otherwise(gated(tmp_path, [BRIDGED], v2=changed)))
    ((low, high),) = rows("select ci_low, ci_high from verdicts where decision_id is not null")
    spread = np.std(changed.astype(float) - old.astype(float))
    assert high - low < 0.9 * 2 * 1.96 * spread / np.sqrt(150)


def test_nothing_is_bridged_where_the_judges_are_the_same(tmp_path: Path, old: Any) -> None:
    assert decided(gated(tmp_path, [BRIDGED], v2=old)).conclusion == "PASS"
    assert rows("select count(*) from experiments where name = 'app-recalibrate'") == [(0,)]
