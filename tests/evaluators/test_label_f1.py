"""label_f1: precision and recall of labels, over all runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.evaluators.binding import bind
from evalflows.evaluators.classification import label_f1
from evalflows.evaluators.score import Score


def judged(answers: list[Any], wanted: list[Any], **settings: Any) -> Score:
    """An answer that is None is a run that failed; a reference that is None is none."""
    score = label_f1(
        [None if one is None else {"output": one} for one in answers],
        [None if one is None else {"label": one} for one in wanted],
        **settings,
    )
    assert score is not None
    return score


def f1(answers: list[Any], wanted: list[Any], **settings: Any) -> float:
    value = judged(answers, wanted, **settings).value
    assert isinstance(value, float)
    return value


#                                     a: 2 of 3 found, 1 too many: 2/3;  b: 1 of 2 found, 1 too many: 1/2;  c: 0
ANSWERS, WANTED = ["a", "a", "b", "a", "b", "b"], ["a", "a", "a", "b", "b", "c"]


def test_the_labels_that_count_may_be_chosen() -> None:
    assert f1(ANSWERS, WANTED, labels=["a"]) == pytest.approx(2 / 3)
    assert f1(ANSWERS, WANTED, labels=["a", "b"]) == pytest.approx((2 / 3 + 2 / 5) / 2)
    assert f1(ANSWERS, WANTED, labels=["a", "b"], average="micro") == pytest.approx(2 * 3 / (5 + 6))
    assert f1(ANSWERS, WANTED, labels="a") == pytest.approx(2 / 3)
    assert f1(["d", "a"], ["a", "a"], labels=["a", "d"]) == pytest.approx((2 / 3 + 0) / 2)
    score = judged(["a", "b"], ["a", "b"], labels=["a", "z"])
    assert score.value == 1.0
    assert (score.comment or "").endswith("; never seen, left out: z")
    with pytest.raises(ValueError, match="labels: got z, wanted some of a, b"):
        judged(["a", "b"], ["a", "b"], labels=["z"])


def test_an_answer_that_is_no_label_or_failed_is_wrong_and_no_label_more() -> None:
    assert f1(["a", "I think b", "b"], ["a", "b", "b"]) == pytest.approx((1 + 2 / 3) / 2)
    assert f1(["a", None], ["a", "a"]) == pytest.approx(2 / 3)
    assert f1(["a", None, "b"], ["a", "a", "b"]) == f1(["a", "?", "b"], ["a", "a", "b"])
    assert f1([None, None], ["a", "b"]) == 0.0


@pytest.mark.parametrize("nothing", ["", "  ", {}])
def test_an_answer_that_says_nothing_is_a_wrong_answer(nothing: Any) -> None:
    assert f1(["a", nothing], ["a", "a"]) == pytest.approx(2 / 3)
    assert "1 without an answer" in (judged(["a", nothing], ["a", "a"]).comment or "")


@pytest.mark.parametrize("nothing", [None, "", " "])
def test_runs_without_a_reference_are_left_out(nothing: Any) -> None:
    assert judged(["a", "a", "b", None], ["a", nothing, "b", nothing]) == judged(["a", "b"], ["a", "b"])


def test_labels_may_be_numbers_and_differ_in_case_and_space_around() -> None:
    assert f1([" A\n", "b"], ["a", "B "]) == 1.0
    assert f1(["A"], ["a"], ignore_case=False) == 0.0
    assert f1(["a "], ["a"], strip=False) == 0.0
    assert f1(["A "], ["a"], labels=[" a"]) == 1.0
    assert f1(["1", 0], [1, "0"]) == 1.0
    assert f1(["True", False], [True, "false"]) == 1.0
    assert f1([True], [1]) == 0.0


def test_the_comment_has_each_label_the_frequent_ones_first_and_stays_readable() -> None:
    assert judged([*ANSWERS, None], [*WANTED, "a"], labels=["c", "b", "a"]).comment == (
        "7 runs, 1 without an answer; a: precision 0.67, recall 0.50, F1 0.57, wanted 4; "
        "b: precision 0.33, recall 0.50, F1 0.40, wanted 2; c: precision none, recall 0.00, F1 0.00, wanted 1"
    )
    labels = [f"label {number}" for number in range(500)]
    comment = judged(labels, labels).comment or ""
    assert comment.endswith("; 480 more labels") and len(comment) < 2000


LABELS = st.sampled_from("abc")


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1))
def test_it_is_the_textbooks_f1(pairs: list[tuple[str, str]]) -> None:
    answers, wanted = [a for a, _ in pairs], [w for _, w in pairs]
    each = []
    for label in {*wanted}:
        hits = sum(a == w == label for a, w in pairs)
        precision = hits / answers.count(label) if label in answers else 0.0
        recall = hits / wanted.count(label)
        each.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    assert f1(answers, wanted) == pytest.approx(sum(each) / len(each))
    accuracy = sum(a == w for a, w in pairs) / len(pairs)
    assert f1(answers, wanted, labels=["a", "b", "c"], average="micro") == pytest.approx(accuracy)


def test_a_key_names_the_field_and_an_answer_without_it_is_wrong() -> None:
    outputs = [{"label": "a", "why": "b"}, {"label": "b", "why": "a"}]
    assert label_f1(outputs, [{"wanted": "a"}, {"label": "b", "note": "a"}], key="label") == judged(
        ["a", "b"], ["a", "b"]
    )
    assert label_f1(outputs, [{"wanted": "a"}, {"wanted": "b"}], key="why").value == 0.0  # type: ignore[union-attr]
    references = [{"label": "a"}, {"label": "a"}]
    assert label_f1([{"label": "a"}, {"oops": 1}], references, key="label") == judged(["a", None], ["a", "a"])
    with pytest.raises(KeyError, match="no output has a field 'labl'"):
        label_f1([{"label": "a"}, None], references, key="labl")


def test_structures_and_settings_that_mean_nothing_are_errors() -> None:
    with pytest.raises(ValueError, match="outputs: got the fields label, why, wanted `key`"):
        label_f1([{"label": "a", "why": "b"}], [{"label": "a"}])
    with pytest.raises(ValueError, match="reference: got a dict, wanted one label"):
        label_f1([{"label": "a"}], [{"label": "a", "note": "b"}])
    with pytest.raises(ValueError, match="reference: got a list"):
        judged(["a"], [["a", "b"]])
    assert f1([["a"], "b"], ["a", "b"], average="micro") == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="average: got 'weighted', wanted macro or micro"):
        judged(["a"], ["a"], average="weighted")
    with pytest.raises(ValueError, match="labels: got an empty list"):
        judged(["a"], ["a"], labels=[])


def test_without_any_reference_it_does_not_apply() -> None:
    assert label_f1([{"output": "a"}, None], [None, {"label": None}]) is None
    assert label_f1([], []) is None


def test_it_is_an_evaluator_of_all_runs_and_says_so_where_it_gets_one() -> None:
    available = {"outputs": [{"output": "a"}], "reference_outputs": [{"label": "a"}]}
    assert bind(label_f1, settings={"average": "micro"}, scope="run").call(available).value == 1.0
    with pytest.raises(TypeError, match="list it under summary_evaluators"):
        bind(label_f1).call({"outputs": {"output": "a"}, "reference_outputs": {"label": "a"}})
