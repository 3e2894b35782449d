"""Logistic regressions of fractional wins, many at once: the same rows with different weights each time."""

import numpy as np
from numpy.typing import NDArray

from evalflows.stats.arrays import FloatArray

STEPS = 200
"""The maximum number of Newton steps. A maximum at log-odds of 10 takes about 15."""

CLOSE = 1e-9
"""Convergence: the largest change of a coefficient in the last Newton step, in log-odds."""

LONGEST = 50.0
"""The largest change of a coefficient in one Newton step, in log-odds; longer steps come from rounding."""

HALVINGS = 40
"""The maximum number of halvings of a step that decreases the likelihood; beyond it only rounding is left."""


def probability(log_odds: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(log_odds))
    return np.asarray(np.where(log_odds >= 0, 1.0, small) / (1.0 + small), dtype=np.float64)


def logistic_fits(design: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    """Return the coefficients, shape (B, P), that maximise sum(wins log p + losses log(1 - p)) in each of B fits.

    p = 1 / (1 + exp(-design @ coefficients)), with `design` of shape (C, P). `wins` and `losses`, shape (B, C), are at
    least 0 and can be fractional (Papke & Wooldridge 1996). The maximum is found by Newton's method from 0, halving
    each step until the likelihood, which is concave, does not decrease. A row of the result is nan if its maximum does
    not exist or was not reached; callers have to ensure that it exists.
    """
    coefficients = np.zeros((wins.shape[0], design.shape[1]))
    unfinished = np.arange(wins.shape[0])
    for _ in range(STEPS):
        if not unfinished.size:
            return coefficients
        counts = wins[unfinished], losses[unfinished]
        try:
            step = _newton_step(design, coefficients[unfinished], *counts)
        except np.linalg.LinAlgError:  # flat: counts differ so much in size that some are lost in rounding
            break
        coefficients[unfinished] += _halved(design, coefficients[unfinished], step, *counts)
        unfinished = unfinished[~(np.abs(step).max(axis=1) <= CLOSE)]  # nan compares false
    coefficients[unfinished] = np.nan
    return coefficients


def information(design: FloatArray, coefficients: FloatArray, games: FloatArray) -> FloatArray:
    """Return the observed information, shape (B, P, P), at coefficients (B, P) with games (B, C)."""
    log_odds = coefficients @ design.T
    squares = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    curvature = (games * probability(log_odds) * probability(-log_odds)) @ squares
    return np.asarray(curvature.reshape(-1, design.shape[1], design.shape[1]), dtype=np.float64)


def _newton_step(design: FloatArray, at: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    log_odds = at @ design.T
    # Not 1 - p, which is all rounding error when p is almost 1.
    gradient = (wins * probability(-log_odds) - losses * probability(log_odds)) @ design
    curvature = information(design, at, wins + losses)
    step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
    largest = np.abs(step).max(axis=1, keepdims=True)
    return np.asarray(step * (LONGEST / np.maximum(largest, LONGEST)), dtype=np.float64)


def _halved(design: FloatArray, at: FloatArray, step: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    """Halve the step of each fit until the likelihood does not decrease by more than rounding."""
    before = _log_likelihood(design @ at.T, wins, losses)
    share = np.ones(len(at))
    for _ in range(HALVINGS):
        after = _log_likelihood(design @ (at + share[:, None] * step).T, wins, losses)
        down: NDArray[np.bool_] = after < before - 1e-12 * np.abs(before)
        if not down.any():
            break
        share[down] /= 2
    return share[:, None] * step


def _log_likelihood(log_odds: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    """Return the log-likelihoods, shape (B,), at log-odds of shape (C, B)."""
    won, lost = -np.logaddexp(0.0, -log_odds.T), -np.logaddexp(0.0, log_odds.T)
    return np.asarray((wins * won + losses * lost).sum(axis=1), dtype=np.float64)
