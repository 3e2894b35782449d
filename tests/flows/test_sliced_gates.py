"""Gates with rules on slices, from the spec to what is printed."""

import re
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from click.testing import CliRunner
from endpoint import Endpoint, completion, serving
from gated import gated

from evalflows import gate, plan, sentences_of
from evalflows.cli.main import cli
from evalflows.pytest_plugin import assert_at_least
from evalflows.reports.decisions import decisions_named, pairs_query, values_query
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.errors import GateFailedError
from evalflows.store.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

N = 120
HARD = [place % 4 == 0 for place in range(N)]
OLD = [True] * N
NEW = [not hard for hard in HARD]  # all wrong where it is hard
RULES = {"non_inferiority": {"exact_match@split=easy": 0.1, "exact_match@split=hard": 0.1}}


def spec(folder: Path, **gate_fields: Any) -> ExperimentSpec:
    fields = gated(folder, [gate_fields], old=OLD, new=NEW)
    for row, hard in zip(fields["dataset"]["rows"], HARD, strict=True):
        row |= {"split": "hard" if hard else "easy", "metadata": {"level": {"n": 2.0 if hard else 1}}}
    return ExperimentSpec.model_validate(fields)


def failing(made: ExperimentSpec) -> Any:
    with pytest.raises(GateFailedError) as caught:
        gate(made)
    (found,) = decisions_named(Store(), caught.value.decisions)
    return found


@pytest.mark.slow
def test_a_regression_in_a_slice_fails_the_gate_that_passes_elsewhere(tmp_path: Path) -> None:
    found = failing(spec(tmp_path, **RULES))
    assert [(rule.metric, rule.outcome, rule.n) for rule in found.rules] == [
        ("exact_match@split=easy", "met", 90),
        ("exact_match@split=hard", "broken", 30),
    ]
    assert found.summary.startswith("exact_match@split=hard is worse by more than 0.1: -1.0")
    assert found.earlier_decisions == 0
    both = found.candidate_experiment_id, found.baseline_experiment_id
    for name in ("exact_match@split=hard", "exact_match@metadata.level.n=2.0"):
        asked = rows(f"select count(*), avg(difference) from ({pairs_query(name, *both)})")
        assert asked == [(30, -1.0)], "the query of a decision has the examples of its slice"
    assert rows(f"select count(*) from ({values_query('exact_match', both[0])})") == [(N,)]
    shown = CliRunner().invoke(cli, ["explain", found.decision_id])
    assert "exact_match@split=hard is worse by more than 0.1" in " ".join(shown.output.split())
    assert "examples that got worse by exact_match: new against old" in shown.output
    assert assert_at_least("exact_match@split=easy", 0.9, experiment="app-new").conclusion == "PASS"
    with pytest.raises(AssertionError) as caught:
        assert_at_least("exact_match@split=hard", 0.9, experiment="app-new")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("FAIL: exact_match@split=hard does not reach 0.9 at 95% confidence: 0.000")
    worst = [line.split(":")[0].strip() for line in lines if line.strip().startswith("q0")]
    assert worst == ["q0000", "q0004", "q0008", "q0012", "q0016"]
    with pytest.raises(InputError, match="no example has split=hrad, wanted one of: easy, hard"):
        assert_at_least("exact_match@split=hrad", 0.9, experiment="app-new")


def test_a_misspelt_slice_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with serving(Endpoint(answer=lambda request: completion("yes"))) as endpoint:
        for name, problem in (
            ("contains@split=hrad", "contains@split=hrad: no example has split=hrad, wanted one of: easy, hard"),
            ("contains@metadata.levl.n=1", "no example has metadata.levl.n=1, and none has this field"),
            ("contians@split=hard", "no evaluator gives 'contians', wanted one of contains"),
        ):
            fields = spec(tmp_path, thresholds={name: 0.5}).model_dump(mode="json", exclude_unset=True)
            fields |= {
                "targets": [{"kind": "chat", "name": "new", "connection": "mock", "user": "{q}"}],
                "evaluators": ["contains"],
                "connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}},
            }
            with pytest.raises(InputError, match=rf"^gate 'release': .*{re.escape(problem)}"):
                gate(ExperimentSpec.model_validate(fields))
    assert endpoint.calls == 0


def test_a_plan_counts_the_examples_of_a_slice(tmp_path: Path) -> None:
    found = plan(spec(tmp_path, **RULES))
    sizes = {metric.metric: metric.n_examples for metric in found.metrics}
    assert sizes == {"exact_match": N, "exact_match@split=easy": 90, "exact_match@split=hard": 30}
    said = " ".join(sentences_of(found))
    assert "on exact_match@split=hard (release)" in said and "the slice's 30 examples detect" in said
