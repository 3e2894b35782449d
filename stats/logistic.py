"""Logistic regressions of fractional wins, many at once: the same rows, weighed differently each time."""

import numpy as np
from numpy.typing import NDArray

from stats.arrays import FloatArray

STEPS = 200
"""Newton steps taken at most. Where the maximum lies at log-odds of 10, about 15 are."""

CLOSE = 1e-9
"""A Newton step no coefficient of which is larger ends the search, in log-odds."""

LONGEST = 50.0
"""A Newton step any coefficient of which is larger is shortened to it, in log-odds: it comes of rounding."""

HALVINGS = 40
"""How often a step that leads down is halved at most. Beyond it, what is left of it is rounding."""


def probability(log_odds: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(log_odds))
    return np.asarray(np.where(log_odds >= 0, 1.0, small) / (1.0 + small), dtype=np.float64)


def logistic_fits(design: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    """The coefficients, shape (B, P), that maximise sum(wins log P + losses log(1 - P)) over the rows, for each of B.

    P = 1 / (1 + exp(-design @ coefficients)), with `design` of shape (C, P); `wins` and `losses` are of shape (B, C),
    at least 0, and need not be whole (Papke & Wooldridge 1996). Newton's method from 0, each step halved until it
    leads up, as it must, the function being concave. nan in a row of the result where the maximum does not exist or
    was not reached: who asks has to see to it that it does.
    """
    found = np.zeros((wins.shape[0], design.shape[1]))
    open_ones = np.arange(wins.shape[0])
    for _ in range(STEPS):
        if not open_ones.size:
            return found
        counts = wins[open_ones], losses[open_ones]
        try:
            step = _newton_step(design, found[open_ones], *counts)
        except np.linalg.LinAlgError:  # flat: counts so unlike in size that some are lost in rounding
            break
        found[open_ones] += _halved(design, found[open_ones], step, *counts)
        open_ones = open_ones[~(np.abs(step).max(axis=1) <= CLOSE)]  # nan compares false
    found[open_ones] = np.nan
    return found


def information(design: FloatArray, coefficients: FloatArray, games: FloatArray) -> FloatArray:
    """Minus the matrix of second derivatives, shape (B, P, P), at coefficients (B, P) with games (B, C)."""
    log_odds = coefficients @ design.T
    squares = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    curvature = (games * probability(log_odds) * probability(-log_odds)) @ squares
    return np.asarray(curvature.reshape(-1, design.shape[1], design.shape[1]), dtype=np.float64)


def _newton_step(design: FloatArray, at: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    log_odds = at @ design.T
    # Not 1 - P: where P is almost 1, that would be rounding.
    gradient = (wins * probability(-log_odds) - losses * probability(log_odds)) @ design
    curvature = information(design, at, wins + losses)
    step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
    largest = np.abs(step).max(axis=1, keepdims=True)
    return np.asarray(step * (LONGEST / np.maximum(largest, LONGEST)), dtype=np.float64)


def _halved(design: FloatArray, at: FloatArray, step: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    """The step, for each of B as much of it as does not lead down; rounding is no way down."""
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
    """Shape (B,), of log-odds of shape (C, B)."""
    won, lost = -np.logaddexp(0.0, -log_odds.T), -np.logaddexp(0.0, log_odds.T)
    return np.asarray((wins * won + losses * lost).sum(axis=1), dtype=np.float64)
