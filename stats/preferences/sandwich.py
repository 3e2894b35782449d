"""Cluster-robust covariance of the coefficients of a logistic regression of fractional wins on sparse rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalflows.stats.arrays import FloatArray
from evalflows.stats.clusters import Clustering
from evalflows.stats.preferences.logistic import Rows, information

LARGEST_LEVERAGE = 0.99
"""Residuals are divided by the root of 1 - leverage, which is then at least 0.1."""


def inverse_information(design: Rows, coefficients: FloatArray, games: FloatArray) -> FloatArray:
    """Return the covariance of the coefficients by the model, shape (P, P)."""
    return np.asarray(np.linalg.inv(information(design, coefficients, games)), dtype=np.float64)


def adjusted_for_leverage(
    residuals: FloatArray, design: Rows, games_variance: FloatArray, bread: FloatArray, groups: NDArray[Any]
) -> FloatArray:
    """Return the residuals, shape (n,), divided by sqrt(1 - leverage): HC2 (MacKinnon & White 1985).

    `games_variance`, shape (n,), is each row's part in the information, `bread` the inverse of all of it. Rows with the
    same number in `groups` share the sum of their leverages, as if they were one row.
    """
    _, place = np.unique(groups, return_inverse=True)
    leverages = np.bincount(place, weights=games_variance * _quadratic(design, bread))[place]
    return np.asarray(residuals / np.sqrt(1 - np.minimum(leverages, LARGEST_LEVERAGE)), dtype=np.float64)


def sandwich(design: Rows, residuals: FloatArray, bread: FloatArray, clustering: Clustering) -> FloatArray:
    """Return the covariance of the coefficients, shape (P, P), with the factor G / (G - 1) of CR1.

    `clustering` is that of the first n rows (Cameron & Miller 2015); rows after them, which were added to the data, are
    units of their own. Needs at least two clusters.
    """
    sparse, n, count = _sparse(), clustering.numbers.size, clustering.count
    scores = sparse.diags_array(residuals) @ design
    members = sparse.csr_array((np.ones(n), (clustering.numbers, np.arange(n))), shape=(count, n))
    sums, added = members @ scores[:n], scores[n:]
    meat = count / (count - 1) * (sums.T @ sums) + added.T @ added
    return np.asarray(bread @ meat.toarray() @ bread, dtype=np.float64)


def _quadratic(rows: Rows, matrix: FloatArray) -> FloatArray:
    """Return x' matrix x for each sparse row x, shape (n,), from its few numbers that are not 0."""
    counts, starts = np.diff(rows.indptr), rows.indptr[:-1]
    total, filled = np.zeros(counts.size), np.arange(int(counts.max(initial=0)))
    places = [np.where(counts > k, starts + k, 0) for k in filled]
    numbers = [np.where(counts > k, rows.data[place], 0.0) for k, place in zip(filled, places, strict=True)]
    columns = [rows.indices[place] for place in places]
    for i, first in enumerate(columns):
        for j, second in enumerate(columns):
            total += numbers[i] * numbers[j] * matrix[first, second]
    return total


def _sparse() -> Any:
    # Late, as in stats.distributions.
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    return sparse
