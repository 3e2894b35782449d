"""A baseline that another judge judged: refused, or bridged by the newer judge on a sample of the older answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalog_rows import rows
from gated import decided, drawn, fallen, gated

from evalflows import approve, run
from evalflows.specs import ExperimentSpec

pytestmark = pytest.mark.usefixtures("without_prefect")

BRIDGED = {"non_inferiority": {"exact_match": 0.05}, "recalibrate": {"sample": 150}}


def judged_otherwise(fields: dict[str, Any]) -> dict[str, Any]:
    """By a judge who finds every tenth right answer wrong."""
    return fields | {"evaluators": [{"use": "odd_evaluators:strict", "name": "exact_match"}]}


VERDICT = """select difference, ci_low, ci_high, n_pairs, method from verdicts where decision_id is not null
             order by recorded_at desc limit 1"""
BRIDGES = "select answered from experiment_overview where name = 'app-recalibrate'"


@pytest.mark.slow
def test_answers_are_compared_by_the_newer_judge_on_a_sample_that_is_judged_once(tmp_path: Path) -> None:
    old = drawn(600, 0.8)
    (first,) = run(ExperimentSpec.model_validate(gated(tmp_path, [], v1=old)))
    approve(first)
    assert decided(gated(tmp_path, [BRIDGED], v2=old)).conclusion == "PASS"
    assert rows(BRIDGES) == [], "the judges are the same"

    one = decided(judged_otherwise(gated(tmp_path, [BRIDGED], v3=old)))
    assert one.conclusion == "PASS"
    ((difference, low, high, pairs, method),) = rows(VERDICT)
    assert low <= 0 <= high
    assert -0.03 < difference < 0.03  # the judges differ by 0.08
    assert (pairs, method.partition(": ")[0]) == (150, "recalibrated")
    assert rows(BRIDGES) == [(150,)]

    one = decided(judged_otherwise(gated(tmp_path, [BRIDGED], v4=fallen(old, 0.25))))
    assert one.conclusion == "FAIL"
    assert one.summary.startswith("exact_match is worse by more than 0.05: -0.2")

    changed = fallen(old, 0.05) | (~old & drawn(600, 0.3, seed=3))
    decided(judged_otherwise(gated(tmp_path, [BRIDGED], v5=changed)))
    ((_, low, high, *_),) = rows(VERDICT)
    spread = np.std(changed.astype(float) - old.astype(float))
    assert high - low < 0.9 * 2 * 1.96 * spread / np.sqrt(150), "what the older judge says of the rest counts"
    assert rows(BRIDGES) == [(150,)], "the sample was not judged again"
