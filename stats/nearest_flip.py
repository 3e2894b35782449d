"""The weights nearest to the declared ones at which another system catches up with the winner."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray
from stats.run_parts import ROUNDING, RunParts, as_run_parts, declared, leading, normalised
from stats.weight_space import NO_WEIGHTS, ONE_PART

STARTS = 8
"""From how many of the nearest drawn weights a search goes on."""

STEPS = 64
"""In how many steps the way from the declared weights to others is looked at."""

LEVEL = 1e-9
"""Means that a search has brought so near to each other are level."""

INSIDE = 1e-9
"""The least weight that is searched: with none at all, a run may be left without parts."""

LEAST_CHANGE_FIRST = 1e-6
"""What the sum of all changes counts beside the largest one: of weights equally near, those that change least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestFlip:
    """How far the weights can move before the winner is caught up with."""

    winner: int | None  # None where several are level as declared
    rival: int | None  # who catches up; None with a reason
    weights: tuple[float, ...] | None  # at which the two are level; they add up to 1
    change: float | None  # the largest change of a normalised weight
    overtakes: bool | None  # whether the rival is ahead beyond; False where it can be level at most
    method: str
    seed: int | None  # None where chance had no part
    reason: str | None


def nearest_flip(parts: RunParts | ArrayLike, weights: ArrayLike, *, draws: int = 20_000, seed: int = 0) -> NearestFlip:
    """The weights with the smallest largest change from the declared ones at which another is level with the winner.

    `parts` are runs, or a table of means of shape (S, J); `weights`, shape (J,), are above 0, and change as they add up
    to 1. A weighted mean is a linear program for each rival (Wolters & Mareschal 1995 have it for rankings), solved by
    HiGHS: exact. First are those who would be ahead beyond these weights; only where nobody ever is, those who draw
    level where a weight is 0. Composites that are not linear in the weights are searched: `draws` weights drawn evenly,
    from the nearest at which another is ahead on to nearer ones; there may be nearer ones still.

    Raises ValueError for what is no part or weight, and for fewer than 100 draws.
    """
    runs = as_run_parts(parts).distinct()
    given = declared(weights, runs.n_parts)
    if draws < 100:
        raise ValueError(f"draws: got {draws!r}, wanted 100 at least")
    leaders = np.flatnonzero(leading(runs.scores(given))[0])
    winner = int(leaders[0])
    none = NearestFlip(
        winner=winner, rival=None, weights=None, change=None, overtakes=None, method="none", seed=None, reason=None
    )
    if leaders.size > 1:
        at = tuple(given.tolist())
        why = "level as declared"
        return replace(none, winner=None, rival=int(leaders[1]), weights=at, change=0.0, reason=why)
    if runs.how == "minimum" or runs.n_parts == 1:
        return replace(none, reason=NO_WEIGHTS if runs.how == "minimum" else ONE_PART)
    if (means := runs.means) is not None:
        return _programmed(means, given, replace(none, method="linear program"))
    return _Search(runs, given, winner).found(replace(none, method="search", seed=seed), draws)


def _programmed(means: FloatArray, given: FloatArray, none: NearestFlip) -> NearestFlip:
    """Exact: the nearest over all rivals, of whom those who can be ahead come first."""
    gains = means - means[none.winner]
    highest = gains.max(axis=1)
    rivals = [rival for rival in range(len(means)) if rival != none.winner]
    overtaking = [rival for rival in rivals if highest[rival] > ROUNDING]
    level = [rival for rival in rivals if highest[rival] > -ROUNDING]
    found = [(weights, rival) for rival in overtaking or level if (weights := _level_at(gains[rival], given))]
    if not found:
        return replace(none, reason="it is better in every part than every other: it wins under all weights")
    weights, rival = min(found, key=lambda one: float(np.abs(one[0] - given).max()))
    return _flip(none, weights, rival, given, overtakes=bool(overtaking))


def _flip(none: NearestFlip, weights: Any, rival: int, given: FloatArray, *, overtakes: bool) -> NearestFlip:
    at = np.asarray(weights)
    change = float(np.abs(at - given).max())
    return replace(none, rival=rival, weights=tuple(at.tolist()), change=change, overtakes=overtakes)


def _level_at(gains: FloatArray, given: FloatArray) -> tuple[float, ...] | None:
    """The nearest weights w with gains @ w = 0. Variables: w, their changes at most u, the largest change at most t."""
    # Late, as in stats.distributions.
    from scipy.optimize import linprog  # type: ignore[import-untyped, unused-ignore]

    n = given.size
    one, nothing, column = np.eye(n), np.zeros((n, n)), np.ones((n, 1))
    at_most = np.block(
        [
            [one, -one, 0 * column],  # w - u <= given
            [-one, -one, 0 * column],  # -w - u <= -given
            [nothing, one, -column],  # u <= t
        ]
    )
    size = float(np.abs(gains).max()) or 1.0
    equal = np.vstack([np.concatenate([np.ones(n), np.zeros(n + 1)]), np.concatenate([gains / size, np.zeros(n + 1)])])
    found = linprog(
        np.concatenate([np.zeros(n), np.full(n, LEAST_CHANGE_FIRST), [1.0]]),
        A_ub=at_most,
        b_ub=np.concatenate([given, -given, np.zeros(n)]),
        A_eq=equal,
        b_eq=np.array([1.0, 0.0]),
        bounds=(0, None),
        method="highs",
    )
    return tuple(normalised(np.maximum(found.x[:n], 0.0))[0].tolist()) if found.success else None


class _Search:
    """Weights at which another is ahead, nearer and nearer to the declared ones."""

    def __init__(self, runs: RunParts, given: FloatArray, winner: int) -> None:
        self._runs, self._given, self._winner = runs, given, winner

    def found(self, none: NearestFlip, draws: int) -> NearestFlip:
        candidates = self._on_the_way(self._ahead(draws, none.seed or 0))
        if not len(candidates):
            return replace(none, reason=f"nobody catches up under any of {draws} weights drawn evenly")
        nearest = min([*candidates, *self._polished(candidates)], key=self._distance)
        lead = self._leads(nearest[None])[0]
        return _flip(none, nearest, int(lead.argmax()), self._given, overtakes=True)

    def _leads(self, weights: FloatArray) -> FloatArray:
        """How far each other system is ahead of the winner, shape (W, S)."""
        scores = self._runs.scores(weights)
        leads: FloatArray = np.asarray(scores - scores[:, [self._winner]])
        leads[:, self._winner] = -np.inf
        return leads

    def _distance(self, weights: FloatArray) -> float:
        return float(np.abs(weights - self._given).max())

    def _ahead(self, draws: int, seed: int) -> FloatArray:
        """Drawn weights at which another is ahead, the nearest first; half of them drawn towards the edges."""
        rng, n = np.random.default_rng(seed), self._given.size
        some = rng.dirichlet(np.ones(n), draws - draws // 2), rng.dirichlet(np.full(n, 0.3), draws // 2)
        drawn = normalised(np.maximum(np.vstack([*some, np.eye(n)]), INSIDE))
        ahead = drawn[self._leads(drawn).max(axis=1) > 0]
        order = np.argsort(np.abs(ahead - self._given).max(axis=1), kind="stable")
        return np.asarray(ahead[order[:STARTS]], dtype=np.float64)

    def _on_the_way(self, ahead: FloatArray) -> list[FloatArray]:
        """Where another first catches up on the straight way to each of these, by steps and then by halving."""
        found = []
        for end in ahead:
            steps = self._given + np.linspace(0, 1, STEPS + 1)[:, None] * (end - self._given)
            first = int((self._leads(steps).max(axis=1) >= 0).argmax())
            low, high = steps[first - 1], steps[first]
            for _ in range(50):
                middle = (low + high) / 2
                low, high = (low, middle) if self._leads(middle[None]).max() >= 0 else (middle, high)
            found.append(high)
        return found

    def _polished(self, candidates: list[FloatArray]) -> list[FloatArray]:
        """Nearer weights by sequential quadratic programming (Kraft 1988), where another still is level."""
        ends = (self._nearer(one, int(self._leads(one[None])[0].argmax())) for one in candidates)
        return [end for end in ends if self._leads(end[None]).max() >= -LEVEL]

    def _nearer(self, start: FloatArray, rival: int) -> FloatArray:
        from scipy.optimize import minimize  # late, as above

        n = start.size
        lead = {"type": "ineq", "fun": lambda x: self._leads(normalised(x[:n]))[0, rival]}
        whole = {"type": "eq", "fun": lambda x: x[:n].sum() - 1}
        sides = [{"type": "ineq", "fun": lambda x, s=sign: x[n] - s * (x[:n] - self._given)} for sign in (1, -1)]
        done = minimize(
            lambda x: x[n],
            np.append(start, self._distance(start)),
            method="SLSQP",
            bounds=[(INSIDE, 1.0)] * n + [(0.0, 1.0)],
            constraints=[lead, whole, *sides],
            options={"maxiter": 200, "ftol": 1e-10},
        )
        return np.asarray(normalised(done.x[:n])[0])
