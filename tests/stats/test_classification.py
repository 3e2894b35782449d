"""Figures of a classification: equal to scikit-learn's, also where answers count several times."""

from typing import Any, get_args

import numpy as np
import pytest

from evalflows.stats.classification import NONE, Average, Classification, ClassificationFigure, Weighting

metrics = pytest.importorskip("sklearn.metrics")

BY_LABEL = ("precision", "recall", "f1")
WHOLE = [ClassificationFigure(name) for name in ("accuracy", "balanced_accuracy", "mcc", "kappa")]  # type: ignore[arg-type]
AVERAGES = [ClassificationFigure(name, of) for name in BY_LABEL for of in get_args(Average)]  # type: ignore[arg-type]
WEIGHTED = [ClassificationFigure("kappa", of) for of in get_args(Weighting)]


def theirs(figure: ClassificationFigure, expected: Any, got: Any, n_labels: int) -> float:
    if figure.name == "kappa":
        labels = range(n_labels) if figure.of else None
        return float(metrics.cohen_kappa_score(expected, got, weights=figure.of, labels=labels))
    if figure.name == "mcc":
        one_class = len(set(expected)) == 1 or len(set(got)) == 1
        return np.nan if one_class else float(metrics.matthews_corrcoef(expected, got))
    if figure.name not in BY_LABEL:
        return float(getattr(metrics, f"{figure.name}_score")(expected, got))
    score = getattr(metrics, f"{figure.name}_score")
    if isinstance(figure.of, int):
        return float(score(expected, got, labels=[figure.of], average=None, zero_division=np.nan)[0])
    occurring = sorted({*expected, *got} - {NONE})  # what is none of the labels is no label of theirs either
    return float(score(expected, got, labels=occurring, average=figure.of, zero_division=0))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("n_labels", "has_none"), [(2, False), (5, False), (6, True)])
def test_figures_are_those_of_scikit_learn(n_labels: int, has_none: bool) -> None:
    rng, undefined = np.random.default_rng(n_labels), 0
    figures = [*WHOLE, *AVERAGES, ClassificationFigure("f1", 0), ClassificationFigure("precision", n_labels - 1)]
    figures += [] if has_none else WEIGHTED
    for n in (3, 12, 40):
        expected = rng.integers(0, n_labels - n % 2, n)
        wrong = rng.integers(NONE if has_none else 0, n_labels, n)
        got = np.where(rng.random(n) < 0.5, expected, wrong)
        weights = np.vstack([np.ones(n), rng.multinomial(n, np.full(n, 1 / n), size=1)]).astype(np.float64)
        found = Classification(expected, got, n_labels, figures)(weights)
        for row, counts in zip(found, weights.astype(int), strict=True):
            columns = np.repeat(expected, counts).tolist(), np.repeat(got, counts).tolist()
            wanted = [theirs(figure, *columns, n_labels) for figure in figures]
            assert row == pytest.approx(wanted, abs=1e-9, nan_ok=True)
            undefined += int(np.isnan(wanted).any())
    assert undefined


def test_none_of_the_labels_is_wrong_and_no_false_positive() -> None:
    figures = [*AVERAGES, *WEIGHTED, ClassificationFigure("precision", 0), ClassificationFigure("recall", 0)]
    expected, ones = np.array([0, 0, 1, 2]), np.ones((1, 4))
    answers = {NONE: np.array([0, NONE, 1, 2]), 2: np.array([0, 2, 1, 2])}
    found = {
        code: dict(zip(figures, Classification(expected, got, 3, figures)(ones)[0].tolist(), strict=True))
        for code, got in answers.items()
    }
    none, far = found[NONE], found[2]
    assert none["precision", "micro"] == none["precision", "macro"] == 1 and none["recall", "micro"] == 0.75
    assert none["precision", 0] == far["precision", 0] == 1 and none["recall", 0] == far["recall", 0] == 0.5
    assert far["precision", "micro"] == 0.75
    # Distances of independent answers: 5.5 / 4 from the labels, 4 / 4 from none of them. Observed is 1.
    assert none["kappa", "linear"] == pytest.approx(1 - 1 / 2.375)
    assert Classification(expected, answers[NONE], 3, [ClassificationFigure("mcc")])(ones)[0, 0] == pytest.approx(
        metrics.matthews_corrcoef(expected, answers[NONE])
    )
    assert {figure.bounds for figure in figures} == {(0.0, 1.0), (-1.0, 1.0)}
