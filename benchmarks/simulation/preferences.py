"""Cells for ratings of entries with planted strengths: coverage of ratings and of differences, order, and slope."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulation.cells import Cell, Figure
from evalflows.stats.arrays import FloatArray
from evalflows.stats.ratings import Ratings, bradley_terry

MET = 0.6
"""The share of pairs of entries that met."""

OF_NEWCOMER = 6
"""The votes of a newcomer."""

REVERSED = Figure(name="significant in the wrong direction", at_most=0.025)
SLOPE = Figure(name="slope on true ratings", is_share=False)
GUARDED = Figure(name="guarded entries")
WIDTH = Figure(name="mean width, not guarded", is_share=False)


class Season(NamedTuple):
    """A made tournament: strengths evenly spaced over -spread to spread, in log-odds, and how the votes come."""

    votes: int  # per pair that met
    name: str = ""
    entries: int = 20
    spread: float = 1.5
    met: float = MET
    order: float = 0.0  # log-odds of being shown first
    graded: bool = False  # points between 0 and 1
    per_prompt: int = 1  # above 1, prompts are clusters, and half of the variance is shared within
    newcomers: Sequence[int] = ()

    @property
    def strengths(self) -> FloatArray:
        return np.linspace(-self.spread, self.spread, self.entries)

    @property
    def expected_votes(self) -> float:
        return math.comb(self.entries, 2) * self.met * self.votes


class Votes(NamedTuple):
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    points: FloatArray
    prompts: list[int] | None


def rating_cells() -> Iterator[Cell]:
    for votes in (1, 2, 5, 50):
        yield _cell(Season(votes))
    for votes in (1, 2, 5):
        yield _cell(Season(votes, "strengths twice as far apart", spread=3.0))
    yield _cell(Season(5, "three newcomers", newcomers=(0, 10, 19)))
    yield _cell(Season(5, "position bias", order=0.5))
    yield _cell(Season(5, "graded points", graded=True))
    yield _cell(Season(5, "prompts of 28 votes", per_prompt=28))
    for votes in (20, 50):
        yield _cell(Season(votes, "4 entries", entries=4, met=1.0))
        yield _cell(Season(votes, "2 entries", entries=2, spread=0.75, met=1.0))


def _cell(season: Season) -> Cell:
    least = 0.94 if season.expected_votes >= 100 else 0.92
    covered = (Figure(name="coverage", at_least=least), Figure(name="coverage of differences", at_least=least))

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for _ in range(math.ceil(runs / season.entries)):  # a tournament has a rating for each entry
            yield _figures(bradley_terry(*_votes(rng, season), entries=season.entries), season.strengths)

    return Cell(
        kind="ratings",
        method="bradley-terry",
        world=season.name or f"{season.entries} entries",
        n=f"{season.votes} votes a pair",
        difference="planted",
        figures=(*covered, REVERSED, SLOPE, GUARDED, WIDTH),
        rows=rows,
    )


def _figures(found: Ratings, truth: FloatArray) -> list[float]:
    assert found.ratings is not None and found.lows is not None and found.highs is not None
    lows, highs, guarded = np.array(found.lows), np.array(found.highs), np.isin(np.arange(truth.size), found.guarded)
    differences = [
        (found.difference(stronger, weaker), truth[stronger] - truth[weaker])
        for weaker, stronger in combinations(range(truth.size), 2)
    ]
    ends = np.array([(pair.low, pair.high, true) for pair, true in differences], dtype=np.float64).T
    return [
        float(np.mean((lows <= truth) & (truth <= highs))),
        float(np.mean((ends[0] <= ends[2]) & (ends[2] <= ends[1]))),
        float(np.mean(ends[1] < 0)),
        float(np.polyfit(truth, found.ratings, 1)[0]),
        float(guarded.mean()),
        math.nan if guarded.all() else float((highs - lows)[~guarded].mean()),
    ]


def _votes(rng: np.random.Generator, season: Season) -> Votes:
    """Draw which pairs met and every vote, each in a random order; again if they do not connect all entries."""
    pairs = np.array([pair for pair in combinations(range(season.entries), 2) if rng.random() < season.met])
    votes = rng.permuted(rng.permutation(np.repeat(pairs, season.votes, axis=0)), axis=1)
    for newcomer in season.newcomers:
        own = np.flatnonzero((votes == newcomer).any(axis=1))
        votes = np.delete(votes, own[OF_NEWCOMER:], axis=0)
    if not _connected(votes, season.entries):
        return _votes(rng, season)
    first, second = votes.T
    prompts = np.arange(len(votes)) // season.per_prompt
    chance = 1 / (1 + np.exp(season.strengths[second] - season.strengths[first] - season.order))
    if season.graded:
        points = rng.beta(2 * chance, 2 * (1 - chance))
    else:
        points = (_luck(rng, season, votes, prompts) < chance).astype(np.float64)
    return Votes(first, second, points, prompts.tolist() if season.per_prompt > 1 else None)


def _luck(rng: np.random.Generator, season: Season, votes: NDArray[np.intp], prompts: NDArray[np.intp]) -> FloatArray:
    """Return uniform numbers; votes on one prompt share half of the variance, by the quality of the answers to it."""
    if season.per_prompt == 1:
        return rng.random(len(votes))
    answers = rng.standard_normal((int(prompts.max()) + 1, season.entries))
    shared = (answers[prompts, votes[:, 0]] - answers[prompts, votes[:, 1]]) / 2
    z = shared + rng.standard_normal(len(votes)) * math.sqrt(0.5)
    return np.array([math.erfc(-each / math.sqrt(2)) / 2 for each in z])


def _connected(votes: NDArray[np.intp], entries: int) -> bool:
    reached = {0}
    while True:
        more = {int(end) for pair in votes if reached & {*pair.tolist()} for end in pair} - reached
        if not more:
            return len(reached) == entries
        reached |= more
