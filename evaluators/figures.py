"""Figures of a whole experiment: what an evaluator of all runs needs so that its metrics can be computed on resamples.

Such a metric has no value per example, so that its interval and its differences come from what it is on resamples.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from evalflows.evaluators.score import Score
from evalflows.specs.frozen import dataclass

if TYPE_CHECKING:  # numpy takes longer to load than all evaluators
    from evalflows.stats.resampling import Statistic

Evaluator = TypeVar("Evaluator", bound=Callable[..., Any])

FIGURES = "figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The metrics of an evaluator of all runs, as a function of how often each run counts."""

    metrics: Sequence[str]  # an empty text stands for the evaluator's own name
    n_runs: int
    statistic: "Statistic"  # from weights of the runs, shape (r, runs), to values, shape (r, metrics)
    lowest: "Statistic | None" = None  # with missing answers as those that give the lowest values; None if not known
    highest: "Statistic | None" = None
    n_missing: int = 0
    labels: Sequence[tuple[str, str | None] | None] | None = None  # expected and got; None for a run without reference

    def values(self) -> list[float | None]:
        """Return the value of each metric on all runs, None where it is not defined."""
        import numpy as np

        (row,) = self.statistic(np.ones((1, self.n_runs))).tolist()
        return null_for_nan(row)

    def scores(self, undefined: str, comment: str | None = None) -> list[Score]:
        """Return the score of each metric with a comment; with `undefined` if it is not defined."""
        return [
            Score(key=metric, value=value, comment=undefined if value is None else comment)
            for metric, value in zip(self.metrics, self.values(), strict=True)
        ]


def null_for_nan(values: Sequence[float]) -> list[float | None]:
    """Return values with None where one is not defined."""
    return [None if value != value else value for value in values]


def figures_by(make: Callable[..., Figures | None]) -> Callable[[Evaluator], Evaluator]:
    """Return a decorator that sets the attribute `figures` of an evaluator of all runs. With the same arguments it
    returns the figures, or None if the evaluator does not apply."""

    def add(function: Evaluator) -> Evaluator:
        vars(function)[FIGURES] = make
        return function

    return add
