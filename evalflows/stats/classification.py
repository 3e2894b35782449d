"""Figures of a classification from all answers together: precision, recall, F1, Matthews' correlation, Cohen's kappa.

They are those of scikit-learn with its defaults, except that what is 0/0 is NaN, and that an answer can be none of the
labels.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalflows.stats.arrays import FloatArray

IntArray = NDArray[np.intp]

NONE = -1
"""The code of an answer that is none of the labels: wrong, but no false positive of any."""

Name = Literal["accuracy", "balanced_accuracy", "precision", "recall", "f1", "mcc", "kappa"]
Average = Literal["macro", "micro", "weighted"]
Weighting = Literal["linear", "quadratic"]


class ClassificationFigure(NamedTuple):
    """A figure: precision, recall and F1 are an average over the labels, or of one label; a kappa can be weighted."""

    name: Name
    of: Average | Weighting | int | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest possible value."""
        return (-1.0 if self.name in ("mcc", "kappa") else 0.0), 1.0


class GroupSums:
    """Sums of weights by group, for weights of shape (r, n) in groups numbered from 0; NONE is in no group."""

    def __init__(self, groups: IntArray, n_groups: int) -> None:
        order = np.argsort(groups, kind="stable")
        self._order = order[np.searchsorted(groups[order], 0) :]
        self._occurring, self._starts = np.unique(groups[self._order], return_index=True)
        self._n_groups = n_groups

    def __call__(self, weights: FloatArray) -> FloatArray:
        """Return the sums, shape (r, n_groups)."""
        sums = np.zeros((len(weights), self._n_groups))
        if self._order.size:
            sums[:, self._occurring] = np.add.reduceat(weights.take(self._order, axis=1), self._starts, axis=1)
        return sums


class Classification:
    """Figures of n answers from the codes of the labels, 0 to `n_labels` - 1; those answered can be NONE.

    Called with weights, shape (r, n), it returns the figures, shape (r, M). A label that occurs in neither column of
    a resample is left out of its macro averages. Labels are in order for the weighted kappas.
    """

    def __init__(
        self, expected: IntArray, got: IntArray, n_labels: int, figures: Sequence[ClassificationFigure]
    ) -> None:
        pairs, kinds = np.unique(expected * (n_labels + 1) + got + 1, return_inverse=True)
        self.figures = tuple(figures)
        self._expected, self._got, self._n_labels = pairs // (n_labels + 1), pairs % (n_labels + 1) - 1, n_labels
        self._of_kinds = GroupSums(kinds, len(pairs))
        self._of_expected, self._of_got = GroupSums(self._expected, n_labels), GroupSums(self._got, n_labels)
        self._of_right = GroupSums(np.where(self._expected == self._got, self._got, NONE), n_labels)

    def __call__(self, weights: FloatArray) -> FloatArray:
        counts = self._of_kinds(weights)
        table = _Table(self._of_expected(counts), self._of_got(counts), self._of_right(counts), counts.sum(axis=1))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.column_stack([self._figure(figure, table, counts) for figure in self.figures])

    def _figure(self, figure: ClassificationFigure, table: "_Table", counts: FloatArray) -> FloatArray:
        if figure.name == "accuracy":
            return np.asarray(table.right.sum(axis=1) / table.n)
        if figure.name == "balanced_accuracy":
            return _mean_where(table.expected > 0, table.right / table.expected)
        if figure.name == "mcc":
            return table.mcc()
        if figure.name == "kappa":
            return table.kappa() if figure.of is None else self._weighted_kappa(figure.of == "linear", table, counts)
        return table.by_label(figure.name, figure.of)

    def _weighted_kappa(self, is_linear: bool, table: "_Table", counts: FloatArray) -> FloatArray:
        """1 - (disagreement) / (that of independent answers), weighted by the distance of two labels (Cohen 1968).

        NONE is as far from each label as the first label from the last.
        """
        places = np.arange(self._n_labels)
        distances = np.abs(places[:, None] - places[None, :]) / max(1, self._n_labels - 1)
        distances = np.column_stack([distances, np.ones(self._n_labels)]) ** (1 if is_linear else 2)  # NONE is last
        by_chance = (table.expected @ distances * np.column_stack([table.got, table.none])).sum(axis=1) / table.n
        return np.asarray(1 - counts @ distances[self._expected, self._got] / by_chance)


class _Table(NamedTuple):
    """Counts of r tables, each by label, shape (r, n_labels)."""

    expected: FloatArray
    got: FloatArray
    right: FloatArray
    n: FloatArray  # shape (r,), with the answers that are none of the labels

    @property
    def none(self) -> FloatArray:
        return np.asarray(self.n - self.got.sum(axis=1))

    def by_label(self, name: Name, of: Average | Weighting | int | None) -> FloatArray:
        """Precision: right / got; recall: right / expected; F1: 2 right / (expected + got) (van Rijsbergen 1979).

        A label that occurs counts 0 in averages where its own precision or recall is 0/0.
        """
        times = 2.0 if name == "f1" else 1.0
        whole = {"precision": self.got, "recall": self.expected}.get(name, self.expected + self.got)
        if of == "micro":
            return np.asarray(times * self.right.sum(axis=1) / whole.sum(axis=1))
        each = times * self.right / whole
        if isinstance(of, int):
            return each[:, of]
        each = np.where(whole > 0, each, 0.0)
        if of == "weighted":
            return np.asarray((each * self.expected).sum(axis=1) / self.n)
        return _mean_where(self.expected + self.got > 0, each)

    def mcc(self) -> FloatArray:
        """Matthews' correlation of several labels (Gorodkin 2004); NaN if all answers or all labels are the same."""
        squares = self.n**2
        agreed = self.right.sum(axis=1) * self.n - (self.expected * self.got).sum(axis=1)
        of_expected = squares - (self.expected**2).sum(axis=1)
        of_got = squares - (self.got**2).sum(axis=1) - self.none**2
        return np.asarray(agreed / np.sqrt(of_expected * of_got))

    def kappa(self) -> FloatArray:
        """Agreement beyond that of independent answers (Cohen 1960); NaN if both are one label throughout."""
        by_chance = (self.expected * self.got).sum(axis=1)
        return np.asarray((self.right.sum(axis=1) * self.n - by_chance) / (self.n**2 - by_chance))


def _mean_where(occurs: NDArray[np.bool_], values: FloatArray) -> FloatArray:
    return np.asarray(np.where(occurs, values, 0.0).sum(axis=1) / occurs.sum(axis=1))
