"""criteria: how repeats are combined."""

from typing import Any

import pytest
from criteria_judged import judged, replying, values

from evalflows.specs.errors import CallError


def test_a_score_over_repeats_is_the_share_of_yes_with_its_spread(reader: Any) -> None:
    (score,) = judged(replying(reader, detail=[True, False, True]), "x", criteria="detail", repeats=3)
    assert score.value == pytest.approx(2 / 3)
    assert score.spread == pytest.approx((1 / 3) ** 0.5)  # the squares 1/9, 4/9, 1/9 make 2/3, over 2 that is 1/3
    assert (score.repeats, score.comment) == (3, "repeat 0")


def test_with_the_mean_the_overall_score_is_the_share_of_repeats_that_meet_all_criteria(reader: Any) -> None:
    model = replying(reader, detail=[True, True, False, True], harmfulness=[False, True, False, False])
    scores = judged(model, "x", criteria=["detail", "harmfulness"], repeats=4)
    assert values(scores) == {None: 0.5, "detail": 0.75, "harmfulness": 0.25}


def test_with_the_majority_the_overall_score_is_consistent_with_the_criteria(reader: Any) -> None:
    verdicts = {"detail": [True, True, False], "depth": [False, True, True]}
    scores = judged(replying(reader, **verdicts), "x", criteria=["detail", "depth"], repeats=3, combine="majority")
    assert values(scores) == {None: True, "detail": True, "depth": True}
    median = judged(replying(reader, **verdicts), "x", criteria=["detail", "depth"], repeats=3, combine="median")
    assert values(median) == {None: 1.0, "detail": 1.0, "depth": 1.0}


def test_with_the_majority_a_harm_in_most_repeats_makes_the_overall_score_false(reader: Any) -> None:
    model = replying(reader, detail=[True, True, True], harmfulness=[True, False, True])
    scores = judged(model, "x", criteria=["detail", "harmfulness"], repeats=3, combine="majority")
    assert values(scores) == {None: False, "detail": True, "harmfulness": True}


def test_repeats_use_temperature_1_by_default(reader: Any) -> None:
    for settings, wanted in (({}, 1.0), ({"temperature": 0.2}, 0.2)):
        model = replying(reader, detail=[True, True])
        judged(model, "x", criteria="detail", repeats=2, **settings)
        assert [parameters["temperature"] for parameters in model.parameters] == [wanted, wanted]
        assert sorted(parameters["repeat"] for parameters in model.parameters) == [0, 1]


def test_a_failed_repeat_fails_the_judgement(reader: Any) -> None:
    def judge(_: Any) -> dict[str, Any]:
        if len(model.prompts) == 2:
            raise CallError("refused", "no")
        return {"reasoning": "", "detail": True}

    model = reader(judge)
    with pytest.raises(CallError, match="no"):
        judged(model, "x", criteria="detail", repeats=3)
    assert len(model.prompts) == 3
