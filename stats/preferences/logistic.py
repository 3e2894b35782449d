"""Logistic regression of fractional wins on sparse rows."""

from typing import Any

import numpy as np

from evalflows.stats.arrays import FloatArray

STEPS = 200
"""The maximum number of Newton steps. A maximum at log-odds of 10 takes about 15."""

CLOSE = 1e-9
"""Convergence: the largest change of a coefficient in the last Newton step, in log-odds."""

LONGEST = 50.0
"""The largest change of a coefficient in one Newton step, in log-odds; longer steps come from rounding."""

HALVINGS = 40
"""The maximum number of halvings of a step that decreases the likelihood; beyond it only rounding is left."""

Rows = Any
"""A matrix of shape (n, P), as a sparse array or dense: scipy, which has the type, is imported late."""


def probability(log_odds: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(log_odds))
    return np.asarray(np.where(log_odds >= 0, 1.0, small) / (1.0 + small), dtype=np.float64)


def logistic_fit(design: Rows, wins: FloatArray, losses: FloatArray) -> FloatArray | None:
    """Return the coefficients, shape (P,), that maximise sum(wins log p + losses log(1 - p)).

    p = 1 / (1 + exp(-design @ coefficients)), with `design` of shape (n, P). `wins` and `losses`, shape (n,), are at
    least 0 and can be fractional (Papke & Wooldridge 1996). The maximum is found by Newton's method from 0, halving
    each step until the likelihood, which is concave, does not decrease. Return None if the maximum does not exist or
    was not reached; callers have to ensure that it exists.
    """
    at = np.zeros(design.shape[1])
    for _ in range(STEPS):
        try:
            step = _newton_step(design, at, wins, losses)
        except np.linalg.LinAlgError:  # flat: counts differ so much in size that some are lost in rounding
            return None
        at = at + _halved(design, at, step, wins, losses)
        if np.abs(step).max(initial=0.0) <= CLOSE:
            return at
    return None


def information(design: Rows, coefficients: FloatArray, games: FloatArray) -> FloatArray:
    """Return the observed information, shape (P, P), at these coefficients with games (n,)."""
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    log_odds = design @ coefficients
    curvature = games * probability(log_odds) * probability(-log_odds)
    product = design.T @ (sparse.diags_array(curvature) @ design)
    return np.asarray(product.toarray() if sparse.issparse(product) else product, dtype=np.float64)


def _newton_step(design: Rows, at: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    log_odds = design @ at
    # Not 1 - p, which is all rounding error when p is almost 1.
    gradient = design.T @ (wins * probability(-log_odds) - losses * probability(log_odds))
    step = np.linalg.solve(information(design, at, wins + losses), gradient)
    return np.asarray(step * (LONGEST / max(float(np.abs(step).max(initial=0.0)), LONGEST)), dtype=np.float64)


def _halved(design: Rows, at: FloatArray, step: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    """Halve the step until the likelihood does not decrease by more than rounding."""
    before = _log_likelihood(design @ at, wins, losses)
    for _ in range(HALVINGS):
        if not _log_likelihood(design @ (at + step), wins, losses) < before - 1e-12 * abs(before):
            break
        step = step / 2
    return step


def _log_likelihood(log_odds: FloatArray, wins: FloatArray, losses: FloatArray) -> float:
    won, lost = -np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds)
    return float(wins @ won + losses @ lost)
