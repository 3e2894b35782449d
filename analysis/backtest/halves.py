"""An experiment against itself: one half of each example's repetitions against the other half."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from evalflows.analysis.differences.experiment_pair import ExperimentPair
from evalflows.analysis.differences.metric_pairs import drop_ambiguous
from evalflows.store.queries.metric_values import MetricValues, has_two_values
from evalflows.store.queries.repetition_values import RepetitionValues, repetition_values

Repetitions = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class RepetitionHalves(ExperimentPair):
    """A pair of two random halves of the candidate's repetitions, drawn for each example."""

    has_run_level_metrics: ClassVar[bool] = False
    metrics: tuple[str, ...]
    seed: int

    @property
    def is_against_itself(self) -> bool:
        return False

    @cached_property
    def values(self) -> Mapping[str, MetricValues]:
        return self._values_of(self._order[:, : self._half])

    @cached_property
    def baseline_values(self) -> Mapping[str, MetricValues]:
        return self._values_of(self._order[:, self._half : 2 * self._half])

    @property
    def _half(self) -> int:
        return self.candidate.repetitions // 2

    @cached_property
    def _order(self) -> Repetitions:
        places = np.tile(np.arange(self.candidate.repetitions), (self.candidate.n_examples, 1))
        return np.random.default_rng(self.seed).permuted(places, axis=1)

    @cached_property
    def _by_repetition(self) -> list[RepetitionValues]:
        return repetition_values(self.reader.store, self.candidate, self.metrics)

    def _values_of(self, chosen: Repetitions) -> Mapping[str, MetricValues]:
        return drop_ambiguous([_of_repetitions(metric, chosen) for metric in self._by_repetition])


def _of_repetitions(metric: RepetitionValues, chosen: Repetitions) -> MetricValues:
    """A metric over the chosen repetitions of each example, shape (examples, repetitions)."""
    values, missing = (np.take_along_axis(array, chosen, axis=1) for array in (metric.values, metric.missing))
    counts = (~np.isnan(values)).sum(axis=1)
    means = np.where(counts > 0, np.nansum(values, axis=1) / np.maximum(counts, 1), np.nan)
    return MetricValues(
        metric=metric.metric,
        evaluator=metric.evaluator,
        evaluator_version=metric.evaluator_version,
        is_yes_no=metric.is_yes_no,
        is_binary=chosen.shape[1] == 1 and (metric.is_yes_no or has_two_values(metric.evaluator, means)),
        values=means,
        missing=np.asarray(missing.any(axis=1)),
        scored=int(counts.sum()),
        n_missing=int(missing.sum()),
        weights=metric.weights,
    )
