"""Several candidates of one gate: whether they can be told apart by the gate's own metrics, and which is best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from evalflows.analysis.diff import strictest
from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.verdicts import classify
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How some candidates compare with each other, by ids of experiments."""

    candidates: Sequence[str]
    metrics: Sequence[str]  # those of the gate that could be compared
    better: Mapping[tuple[str, str], Sequence[str]]  # the first is significantly better than the second in these

    @property
    def best(self) -> str | None:
        """The candidate that is better than each other one in some metric, and worse in none; None if none is."""
        return next(
            (candidate for candidate in self.candidates if len(self.candidates) > 1 and self._beats_all(candidate)),
            None,
        )

    def _beats_all(self, candidate: str) -> bool:
        others = [other for other in self.candidates if other != candidate]
        return all((candidate, other) in self.better and (other, candidate) not in self.better for other in others)


def standing(store: Store, candidates: Sequence[str], metrics: Sequence[str]) -> Standing:
    """Compare candidates with each other by some metrics, with p-values adjusted over all pairs and metrics.

    Metrics that two candidates do not share, and those of judges that decide nothing, tell nothing apart.
    """
    reader = MetricReader(store)
    rows = [store.read("experiments", identity)[0] for identity in candidates]
    pairs = [
        ExperimentPair(reader=reader, spec=reader.spec(second), candidate=second, baseline=first)
        for first, second in combinations(rows, 2)
    ]
    tested = [
        (pair, metric, pair.difference_test(paired))
        for pair in pairs
        for metric in metrics
        if (paired := pair.paired(metric)) is not None
    ]
    better: dict[tuple[str, str], list[str]] = {}
    for (pair, metric, _), verdict in zip(
        tested, classify([test for *_, test in tested], strictest(pairs)), strict=True
    ):
        first, second = pair.baseline.experiment_id if pair.baseline else "", pair.candidate.experiment_id
        if verdict.conclusion in ("better", "worse"):
            sides = (second, first) if verdict.conclusion == "better" else (first, second)
            better.setdefault(sides, []).append(metric)
    compared = {metric for _, metric, test in tested if test.exclusion is None}
    return Standing(
        candidates=list(candidates), metrics=[metric for metric in metrics if metric in compared], better=better
    )
