"""A spec is prepared once: what is written into it, what is bound, and how long a process remembers it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evalflows import run
from evalflows.engine.prepare import prepare
from evalflows.engine.spec_evaluators import evaluator_version, prepare_evaluator
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.reference import refer
from evalflows.tasks.snapshot import check_and_freeze, freeze_dataset


class Counting:
    """An evaluator that counts how often it is made."""

    made: ClassVar[int] = 0

    def __init__(self) -> None:
        Counting.made += 1

    def __call__(self, outputs: dict[str, Any]) -> bool:
        return True


@pytest.fixture(autouse=True)
def _none_made() -> Iterator[None]:
    Counting.made = 0
    yield
    Counting.made = 0


def spec(*evaluators: Any, **fields: Any) -> ExperimentSpec:
    targets = [{"kind": "recorded", "name": name, "column": "reference_outputs"} for name in ("old", "new")]
    rows = [{"inputs": {"question": "q"}, "reference_outputs": {"answer": "a"}}]
    given = {"name": "prepared", "dataset": {"rows": rows}, "targets": targets, "evaluators": list(evaluators)}
    return ExperimentSpec.model_validate(given | fields)


def counting(**said: Any) -> dict[str, Any]:
    return {"use": refer(Counting), "name": "counting"} | said


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_a_run_that_has_ended_is_forgotten_so_that_another_one_binds_what_the_code_is_then() -> None:
    assert len(run(spec(counting(), run_key="a", repetitions=2))) == 2
    assert Counting.made == 1, "once for a whole run of two targets"
    run(spec(counting(), run_key="b"))
    assert Counting.made == 2


def test_what_was_checked_is_not_bound_again_for_the_flow_that_it_is_handed_to() -> None:
    run = check_and_freeze(spec(counting()))
    again = ExperimentSpec.model_validate_json(run.prepared.spec.model_dump_json())
    with run.handed_on():
        assert freeze_dataset.fn(again) is run and Counting.made == 1
    taken_up = freeze_dataset.fn(again)
    assert taken_up.prepared.described == run.prepared.described, "as another process has it"
    assert Counting.made == 2


def test_a_tier_is_bound_once_and_bears_its_own_name() -> None:
    tiers = [counting(name="rule", decides=[True]), "exact_match"]
    prepared = prepare_evaluator(EvaluatorSpec.model_validate({"use": "cascade", "name": "right", "tiers": tiers}))
    assert Counting.made == 1
    assert (prepared.name, prepared.bound.name, prepared.connection) == ("right", "right", None)
    assert [tier.bound.name for tier in prepared.tiers] == ["rule", "exact_match"]
    assert [one.name for one in prepared.all] == ["right", "rule", "exact_match"]
    assert evaluator_version(prepared, {}) == evaluator_version(prepared, {})


def test_a_comparison_is_prepared_with_its_prompts_as_texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "which.md").write_text("Which is better?\n{outputs}")
    judge = {"use": "pairwise_preference", "args": {"prompt": "which.md"}}
    given = ComparisonSpec.model_validate({"experiments": ["a", "b"], "evaluators": [judge]})
    prepared = prepare(given)
    assert prepared.spec.evaluators[0].args["prompt"].startswith("Which is better?")
    assert prepared.evaluators[0].spec == prepared.spec.evaluators[0]
    assert [one.name for one in prepared.described] == ["pairwise_preference"]
