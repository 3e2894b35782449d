"""Win rates of a comparison that is judged in batches: intervals that hold at every look, so that it may stop early."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from evalflows.analysis.verdicts import DifferenceTest, Verdict, no_difference, why_missing
from evalflows.engine.order import cluster_boundary
from evalflows.stats.paired import PairedDifference
from evalflows.stats.sequential import cluster_values, confidence_sequence
from evalflows.store.records import ComparisonSetRow, Reason
from evalflows.store.snapshots import Examples

NOT_AT_LOOKS = Reason("no_interval", "there is no interval for it that holds at interim analyses")
"""Why ratings and win rates at equal length have no intervals, and decide nothing, if pairs are judged in batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """An interim analysis of a comparison, or its last one: the examples whose pairs have all been judged."""

    places: Mapping[str, int]  # of these examples in the order of judging
    clusters: Mapping[str, str | None]  # of all compared examples
    n_tests: int = 1  # win rates that are looked at together
    n_slice_tests: int = 1

    @property
    def n_seen(self) -> int:
        return len(self.places)

    @property
    def is_last(self) -> bool:
        return len(self.places) == len(self.clusters)

    def of_examples(self, examples: Collection[str]) -> "Look":
        """Restrict to some examples."""
        places = {example: index for example, index in self.places.items() if example in examples}
        clusters = {example: cluster for example, cluster in self.clusters.items() if example in examples}
        return replace(self, places=places, clusters=clusters)

    def test(self, outcomes: pd.DataFrame, confidence_level: float, exclusion: Reason | None) -> DifferenceTest:
        """Return the evidence on a candidate's points minus the baseline's, from -1 to 1, with confidence sequences.

        `outcomes` are those of `Preferences.between`. The points of an example are the mean of its repetitions.
        """
        rows = outcomes[outcomes.status.isin(["scored", "missing"]) & outcomes.example_id.isin(list(self.places))]
        points = rows.groupby("example_id").points.mean(skipna=False)
        points = points.loc[sorted(points.index, key=self.places.__getitem__)]
        n_missing = int(points.isna().sum())
        estimate = lowest = highest = self._difference(points.dropna(), confidence_level)
        if n_missing:
            lowest, highest = (self._difference(points.fillna(case), confidence_level) for case in (0.0, 1.0))
        return DifferenceTest(
            estimate=estimate, lowest=lowest, highest=highest, n_missing=n_missing, exclusion=exclusion
        )

    def _difference(self, points: "pd.Series[float]", confidence_level: float) -> PairedDifference:
        low = high = mean = reason = None
        clusters = [self.clusters[example] for example in points.index]
        if len(points):
            sizes = Counter(cluster or f"example {example}" for example, cluster in self.clusters.items())
            values = cluster_values(
                2 * points.to_numpy(np.float64) - 1,
                clusters,
                average_size=len(self.clusters) / len(sizes),
                largest_size=max(sizes.values()),
            )
            bounds = (-values.bounds_factor, values.bounds_factor)
            sequence = confidence_sequence(values.values, bounds=bounds, confidence_level=confidence_level)
            mean, low, high, reason = float(points.mean()), sequence.low[-1], sequence.high[-1], sequence.reason
        return PairedDifference(
            candidate_mean=mean,
            baseline_mean=None if mean is None else 1 - mean,
            difference=None if mean is None else 2 * mean - 1,
            low=low,
            high=high,
            p_value=None,
            confidence_level=confidence_level,
            method="betting",
            n_pairs=len(points),
            n_clusters=len(set(clusters)) if any(clusters) else None,
            reason=reason if len(points) else "no batch of pairs has been judged yet",
        )


def look_at(row: ComparisonSetRow, examples: Examples, judged: Collection[str]) -> Look:
    """Return what can be looked at: `examples`, in the order of judging, up to the last batch whose pairs have all been
    `judged`, without the first part of a cluster."""
    clusters = dict(zip(examples.ids, examples.clusters, strict=True))
    done = next((index for index, example in enumerate(examples.ids) if example not in judged), len(examples.ids))
    if done < len(examples.ids):
        done = cluster_boundary(examples.clusters, done - done % row.chunk_size)
    return Look(places={example: index for index, example in enumerate(examples.ids[:done])}, clusters=clusters)


def conclusion_of(test: DifferenceTest, at_level: DifferenceTest, n_tests: int) -> Verdict:
    """Classify by the intervals alone: a confidence sequence has no test.

    `at_level` is the same evidence at the level of Bonferroni's method over all `n_tests` win rates.
    """
    if test.exclusion is not None:
        return Verdict.undecided(test.exclusion)
    gain, worst = at_level.gain(), at_level.worst_case_gain()
    if gain is None or worst is None:
        return Verdict.undecided(Reason("no_interval", test.estimate.reason or "no interval"))
    if worst[0] > 0 or worst[1] < 0:
        return Verdict(conclusion="better" if worst[0] > 0 else "worse")
    alone = test.gain() or gain
    if alone[0] <= 0 <= alone[1]:
        return Verdict.undecided(no_difference(test.estimate.n_pairs))
    if gain[0] <= 0 <= gain[1]:
        level = f"{100 * at_level.estimate.confidence_level:.3g} %"
        text = f"the interval at {level}, for {n_tests} win rates (Bonferroni), includes no difference"
        return Verdict.undecided(Reason("not_significant_after_adjustment", text))
    return Verdict.undecided(why_missing(at_level))
