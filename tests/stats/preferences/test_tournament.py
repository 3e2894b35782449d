"""tournament: counts by pair and cluster."""

import numpy as np

from evalflows.stats.clusters import clustering_of
from evalflows.stats.preferences.tournament import Judgements, tournament


def test_judgements_are_counted_by_cell_and_cluster() -> None:
    judgements = Judgements(
        first=np.array([0, 1, 0, 0]),
        second=np.array([1, 0, 2, 1]),
        points=np.array([1.0, 1.0, 0.5, 0.0]),
        weights=np.array([1.0, 2.0, 3.0, 4.0]),
    )
    played = tournament(judgements, clustering_of("aaba", 4), 3)
    assert list(zip(played.first, played.second, strict=True)) == [(0, 1), (0, 2), (1, 0)]
    assert played.wins.tolist() == [[1.0, 0.0, 2.0], [0.0, 1.5, 0.0]]
    assert played.losses.tolist() == [[4.0, 0.0, 0.0], [0.0, 1.5, 0.0]]
    assert (played.pairs(), played.in_both_orders(), played.apart()) == ([(0, 1), (0, 2)], True, None)
    turned = tournament(judgements.in_one_order(), clustering_of("aaba", 4), 3)
    assert turned.wins.tolist() == [[1.0, 0.0], [0.0, 1.5]]
    assert turned.losses.tolist() == [[6.0, 0.0], [0.0, 1.5]]
    assert not turned.in_both_orders()
