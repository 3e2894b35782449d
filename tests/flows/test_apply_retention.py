"""The flow of retention erases, and what was erased is answered and judged no more."""

import json
from pathlib import Path

import pytest
from catalog_rows import rows
from click.testing import CliRunner
from planted_difference import often, seldom, spec, targets

from evalflows import compare, run
from evalflows.cli.main import cli
from evalflows.flows.apply_retention import apply_retention
from evalflows.specs import InputError
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.reference import refer
from evalflows.specs.retention import RetentionSpec
from evalflows.store.erasing import Selection
from evalflows.store.retention import erase
from evalflows.store.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

asked: list[str] = []
judged: list[object] = []


def listening(question: str) -> str:
    asked.append(question)
    if question == "q3":
        raise ValueError(f"cannot answer {question}")
    return question.upper()


def longer(outputs: list[dict[str, str]]) -> list[int]:
    judged.append(outputs)
    return [1, 0]


def command(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, [*arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.slow
def test_a_run_on_erased_examples_is_one_error_and_asks_nothing() -> None:
    run(spec(targets=targets(listening=listening)))
    figures = rows(
        "select metric, mean, scored, missing from metric_summary where metric not in ('latency') order by 1"
    )
    assert erase(Store(), Selection(examples=["q3"]), None).rows["outputs"] == 1
    assert (
        rows("select metric, mean, scored, missing from metric_summary where metric not in ('latency') order by 1")
        == figures
    )
    asked.clear()
    for again in (
        spec(dataset={"name": "rows"}, targets=targets(listening=listening)),
        spec(targets=targets(listening=listening)),  # the same rows are the same snapshot
    ):
        with pytest.raises(InputError, match=r"got an erased example \(q3\), wanted texts to answer or judge"):
            run(again)
    assert asked == []
    run(spec(dataset={"name": "rows", "sample": 5, "seed": 2}, targets=targets(listening=listening)))
    assert len(asked) == 5 and "q3" not in asked


@pytest.mark.slow
def test_an_erased_experiment_is_shown_but_neither_resumed_nor_compared() -> None:
    given = spec(targets=targets(often=often, seldom=seldom), run_key="once")
    first, second = run(given)
    shown = command("show", "main", "--format", "json")
    erase(Store(), Selection(examples=["q1"]), None)
    now_shown = command("show", "main", "--format", "json")
    pairs_of_lines = zip(shown[1].splitlines(), now_shown[1].splitlines(), strict=True)
    changed = [after for before, after in pairs_of_lines if before != after]
    assert json.loads(now_shown[1])["experiments"] and changed
    assert all("(erased 20" in line for line in changed), "no figure changes"
    assert command("diff", "main-seldom", "main-often")[0] == 0
    assert run(given) == [first, second], "it has nothing left to do"
    Path(Store().layout.sealed("judgements", first)).unlink()
    with pytest.raises(InputError, match=r"got an erased example \(q1\)"):
        run(given)
    pairs = ComparisonSpec.model_validate({"experiments": [first, second], "evaluators": [refer(longer)]})
    with pytest.raises(InputError, match=r"got an erased example \(q1\)"):
        compare(pairs)
    assert judged == []


@pytest.mark.slow
def test_the_flow_applies_the_rules_and_publishes_what_it_did() -> None:
    run(spec(name="old", targets=targets(often=often)))
    assert apply_retention(RetentionSpec(experiments_days=1)) == {"experiments_days: 1": {}}
    assert rows("select count(*) from experiments where name = 'old'") == [(1,)]
