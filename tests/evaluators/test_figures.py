"""Figures of all answers: as evaluators score them, on weights, with missing answers, and what is said of labels."""

from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from evalflows.evaluators import classification, corpus_bleu, cost_per_solved, label_f1, regression
from evalflows.evaluators.declarations import CHECK
from evalflows.evaluators.figures import FIGURES, Figures
from evalflows.evaluators.score import Score
from evalflows.evaluators.views import Evaluation, Evaluations, ExampleView, ItemResult, RunView

REFERENCES: list[dict[str, Any] | None] = [{"l": label} for label in ("Spam", "ham", "spam ", "ham", "eggs")] + [None]
OUTPUTS: list[dict[str, Any] | None] = [{"l": label} for label in ("spam", "ham", "HAM", "bacon")] + [None, {"l": "x"}]
INPUTS = [{"n": n} for n in range(6)]


def figures(evaluator: Any, *arguments: Any, **settings: Any) -> Figures:
    found: Figures = vars(evaluator)[FIGURES](*arguments, **settings)
    return found


def values(scores: Any) -> dict[str, float]:
    return {score.key: score.value for score in scores}


def test_labels_are_compared_as_one_matrix_and_missing_answers_at_both_extremes() -> None:
    settings = {
        "expected": "reference_outputs.l",
        "got": "outputs.l",
        "measures": ["accuracy", "f1:spam", "recall_macro"],
    }
    found = figures(classification, INPUTS, OUTPUTS, REFERENCES, **settings)
    assert found.metrics == settings["measures"] and found.n_missing == 1 and found.n_runs == 6
    assert found.labels == [("spam", "spam"), ("ham", "ham"), ("spam", "ham"), ("ham", "bacon"), None, None]
    assert values(classification(INPUTS, OUTPUTS, REFERENCES, **settings)) == pytest.approx(
        {"accuracy": 0.5, "f1:spam": 2 / 3, "recall_macro": 0.5}
    )
    assert found.lowest is not None and found.highest is not None
    once = np.ones((1, 6))
    assert found.highest(once)[0] == pytest.approx([0.6, 2 / 3, 2 / 3])
    assert found.lowest(once)[0] == pytest.approx([0.4, 0.5, 1 / 3])  # as spam, a false positive
    (doubled,) = found.statistic(np.array([[2.0, 0, 1, 0, 0, 5]]))
    assert doubled[:2] == pytest.approx([2 / 3, 0.8])

    (one,) = figures(label_f1, OUTPUTS[:5], REFERENCES[:5]).statistic(np.ones((1, 5)))
    score = label_f1(OUTPUTS[:5], REFERENCES[:5])
    assert isinstance(score, Score) and one[0] == pytest.approx(score.value)


def test_spellings_are_said_and_labels_that_never_occur_are_refused() -> None:
    check = vars(classification)[CHECK]
    examples = [
        ExampleView(id=f"e{n}", inputs={}, reference_outputs=reference) for n, reference in enumerate(REFERENCES)
    ]
    without = "1 of 6 examples have no label at the reference and are left out"
    alike = "references that differ only in case or white space are one label: 'Spam' and 'spam '"
    assert check(examples, {}) == f"{without}; {alike}"
    with pytest.raises(ValueError, match="labels: got none with kappa_linear, wanted the labels in their order"):
        check(examples, {"measures": ["kappa_linear"]})
    assert "different labels" in check(examples, {"strip": False})
    assert check(examples[1:2], {}) is None
    with pytest.raises(ValueError, match="got 'bacon', which no reference has, wanted some of"):
        check(examples, {"labels": ["spam", "bacon"]})
    with pytest.raises(ValueError, match="example 'e0': expected: got the fields a, b, wanted one label, or a path"):
        check([ExampleView(id="e0", inputs={}, reference_outputs={"a": 1, "b": 2})], {})


def test_an_answer_that_is_no_number_is_missing() -> None:
    references = [{"grade": grade} for grade in (1, 2.5, "3", 4)]
    outputs = [{"grade": "1"}, {"grade": 2}, {"grade": "good"}, None]
    found = figures(regression, INPUTS[:4], outputs, references, measures=["mae", "bias"])
    assert (found.n_missing, found.lowest, found.values()) == (2, None, [0.25, -0.25])
    (mae,) = regression(INPUTS[:4], outputs, references, measures=["mae"]) or []
    assert (mae.value, mae.comment) == (0.25, "2 without a number are missing")


def test_a_corpus_bleu_on_weights_is_sacrebleus_of_the_repeated_answers() -> None:
    texts = ["the cat sat on the mat today", "a quick brown fox jumps over it", "", "there is a cat on the mat"]
    wanted = [
        "the cat sat on the mat",
        "the quick brown fox jumps over the dog",
        "hello there",
        "the cat is on the mat",
    ]
    outputs = [{"text": text} if text else None for text in texts]
    found = figures(corpus_bleu, outputs, [{"text": text} for text in wanted])
    for weights in ([1, 1, 1, 1], [3, 0, 1, 2], [0, 2, 0, 1]):
        drawn = [place for place, count in enumerate(weights) for _ in range(count)]
        metric = BLEU(force=True)
        score = metric.corpus_score([texts[place] for place in drawn], [[wanted[place] for place in drawn]]).score
        assert found.statistic(np.array([weights], dtype=float))[0, 0] == pytest.approx(score, abs=1e-9)
    assert found.highest is not None and found.n_missing == 1
    assert found.highest(np.ones((1, 4)))[0, 0] > (found.values()[0] or 0)


def test_the_cost_of_a_solved_task_is_not_defined_where_none_is() -> None:
    results = [
        ItemResult(
            item=ExampleView(id=str(n), inputs={}),
            output=None,
            evaluations=Evaluations([Evaluation(name="state_matches", value=float(n % 2))]),
            run=RunView(id=str(n), inputs={}, outputs={}, cost_usd=0.5),
        )
        for n in range(4)
    ]
    found = figures(cost_per_solved, results)
    assert found.values() == [1.0]
    assert np.isnan(found.statistic(np.array([[2.0, 0, 2, 0]]))[0, 0])
