"""The order in which examples and chunks run."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from evalflows.engine.chunks import Rounds
from evalflows.engine.pair_trials import PairChunk
from evalflows.specs.grouping import grouped
from evalflows.store.records import ExperimentRow
from evalflows.store.snapshots import Examples

ORDER_SEED = 0
"""Seed of the order of the examples if there are interim analyses: each batch must be a random sample."""

OfExamples = TypeVar("OfExamples", Rounds, PairChunk)


def in_running_order(row: ExperimentRow, examples: Examples) -> Examples:
    """Return the examples in running order: that of the snapshot, or a random one by the experiment's seed."""
    return examples if row.seed is None else in_random_order(examples, row.seed)


def in_random_order(examples: Examples, seed: int) -> Examples:
    """Return the examples as whole clusters in random order, so that each batch is a random sample."""
    numbered = enumerate(zip(examples.ids, examples.clusters, strict=True))
    by_cluster = grouped((cluster or f"alone {identity}", number) for number, (identity, cluster) in numbered)
    order = np.random.default_rng(seed).permutation(len(by_cluster))
    clusters = list(by_cluster.values())
    return examples.select(number for index in order for number in clusters[index])


def cluster_boundary(clusters: Sequence[str | None], place: int) -> int:
    """Return the last position, at most `place`, that splits no cluster, whose examples follow each other."""
    while 0 < place < len(clusters) and clusters[place] is not None and clusters[place] == clusters[place - 1]:
        place -= 1
    return place


def waves_of(work: "Sequence[OfExamples]", batch: int | None) -> "list[list[OfExamples]]":
    """Return the chunks in running order: all at once, or batch by batch if there are interim analyses.

    A batch holds the same examples of every experiment, or pair.
    """
    if batch is None or not work:
        return [list(work)]
    starts = sorted({each.chunks[0].start for each in work})
    return [[each for each in work if each.chunks[0].start == start] for start in starts]
