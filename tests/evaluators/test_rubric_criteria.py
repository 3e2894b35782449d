"""rubric: several criteria in one call, and settings from YAML."""

import asyncio
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest
import yaml
from rubric_judged import (
    ANSWER,
    CRITERIA,
    QUESTION,
    REFERENCE,
    RUBRIC,
    ScriptedJudge,
    judged,
    prompt_sent,
    scoring_criteria,
)

from evalflows.evaluators.call import bind
from evalflows.evaluators.rubric import rubric
from evalflows.evaluators.score import Judgement, normalise
from evalflows.specs.evaluator import EvaluatorSpec


def test_criteria_are_judged_in_one_call_and_weighted() -> None:
    judge = scoring_criteria((5, 2))
    whole, faithful, kind = judged(judge, criteria=CRITERIA)
    assert len(judge.requests) == 1
    assert whole.value == pytest.approx((3 * 5 + 1 * 2) / 4)
    assert [(score.key, score.value) for score in (faithful, kind)] == [("faithful", 5.0), ("kind", 2.0)]
    assert {score.comment for score in (whole, faithful, kind)} == {"repeat 0"}
    assert len({(score.prompt_hash, score.repeats) for score in (whole, faithful, kind)}) == 1
    prompt = judge.requests[0][0]
    assert f"Rubric:\n{RUBRIC}\n- faithful: Says nothing that is not so.\n- kind: Is friendly.\n" in prompt
    assert 'Give for each criterion, by its name ("faithful", "kind"): a whole number from 1 (worst)' in prompt
    assert "weight" not in prompt


def test_each_criterion_is_combined_before_weighting() -> None:
    judge = scoring_criteria((5, 1), (1, 5), (5, 4))
    whole, faithful, kind = judged(judge, criteria=CRITERIA, repeats=3, combine="median")
    assert (faithful.value, kind.value) == (5.0, 4.0)
    assert whole.value == pytest.approx((3 * 5 + 4) / 4)  # of the criteria's scores, so that they agree
    per_repeat = [(15 + 1) / 4, (3 + 5) / 4, (15 + 4) / 4]
    assert whole.spread == pytest.approx(stdev(per_repeat))
    assert faithful.spread == pytest.approx(stdev([5, 1, 5])) and kind.spread == pytest.approx(stdev([1, 5, 4]))
    assert (whole.comment, faithful.comment, kind.comment) == ("repeat 2", "repeat 0", "repeat 2")


def test_the_mean_does_not_depend_on_whether_repeats_or_criteria_are_combined_first() -> None:
    pairs = [(5, 1), (1, 5), (4, 4), (2, 3)]
    whole, *_ = judged(scoring_criteria(*pairs), criteria=CRITERIA, repeats=4)
    assert whole.value == pytest.approx(fmean((3 * a + b) / 4 for a, b in pairs))


def test_a_criterion_with_weight_0_is_reported_but_not_counted() -> None:
    whole, faithful, kind = judged(scoring_criteria((5, 1)), criteria={"faithful": "", "kind": {"weight": 0}})
    assert (whole.value, faithful.value, kind.value) == (5.0, 5.0, 1.0)


def test_criteria_can_have_labels_with_numbers() -> None:
    judge = ScriptedJudge({"reasoning": "", "faithful": "no", "kind": "yes"})
    whole, faithful, kind = judged(judge, criteria=CRITERIA, labels={"yes": 1.0, "no": 0.0})
    assert (whole.value, whole.label) == (0.25, None)
    assert [(score.value, score.label) for score in (faithful, kind)] == [(0.0, "no"), (1.0, "yes")]


def test_each_criterion_is_a_metric() -> None:
    judgements = normalise(judged(scoring_criteria((5, 2)), criteria=CRITERIA), "quality")
    assert [judgement.metric for judgement in judgements] == ["quality", "faithful", "kind"]
    assert all(isinstance(judgement, Judgement) for judgement in judgements)
    assert all(judgement.status == "scored" and judgement.repeats == 1 for judgement in judgements)


def test_criteria_need_no_rubric() -> None:
    assert "Rubric:\n- faithful: Says" in prompt_sent(scoring_criteria((5, 2)), rubric="", criteria=CRITERIA)


def test_settings_can_come_from_yaml() -> None:
    settings = yaml.safe_load(
        """
        rubric: Judge as an editor would.
        criteria:
          faithful: {weight: 3, description: Says nothing that is not so.}
          kind:
        scale: [0, 10]
        repeats: 3
        combine: median
        """
    )
    bound = bind(rubric, settings=settings)
    available = {"inputs": QUESTION, "outputs": ANSWER, "reference_outputs": None, "metadata": {}}
    scores = asyncio.run(bound.call(available | {"complete": scoring_criteria((10, 0), (7, 0), (0, 3))}))
    assert [score.value for score in scores] == [pytest.approx(21 / 4), 7.0, 0.0]


def test_the_example_in_the_documents_gives_the_stated_scores() -> None:
    document = (Path(__file__).parents[2] / "docs" / "evaluators.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(evaluators:\n  - use: rubric\n.*?)```", document, flags=re.S)
    spec = EvaluatorSpec.model_validate(yaml.safe_load(block)["evaluators"][0])
    judge = ScriptedJudge(*({"reasoning": "", "faithful": 5, "complete": score, "polite": 1} for score in (1, 4, 3)))
    available = {
        "inputs": QUESTION,
        "outputs": ANSWER,
        "reference_outputs": REFERENCE,
        "metadata": {},
        "complete": judge,
    }
    scores = normalise(asyncio.run(bind(rubric, settings=spec.args).call(available)), spec.metric)
    values = {"quality": pytest.approx((15 + 6 + 1) / 6), "faithful": 5.0, "complete": 3.0, "polite": 1.0}
    assert {score.metric: score.value for score in scores} == values
