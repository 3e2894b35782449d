"""paired_differences: many replicates at once are what each is alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evalflows.stats.paired import paired_difference, paired_differences

R, N = 12, 40
EVEN = [f"c{place // 4}" for place in range(N)]
UNEVEN: list[str | None] = [None if place < 6 else f"c{int(place**0.5)}" for place in range(N)]


def rows(kind: str) -> tuple[Any, Any]:
    ours, theirs = np.random.default_rng(0).normal(0.6, 0.2, (2, R, N)).clip(0, 1)
    if kind == "yes and no":
        return (ours > 0.5).astype(float), (theirs > 0.6).astype(float)
    if kind == "rare yes and no":  # none, one or two differ; or all are lost
        ours, theirs = np.ones((R, N)), np.ones((R, N))
        ours[2:6, 3], ours[4:8, 30], ours[8:10] = 0.0, 0.0, 0.0
        return ours, theirs
    if kind == "without spread":
        ours[: R // 2] = theirs[: R // 2] + 0.1 * (np.arange(R // 2)[:, None] % 3)
    return ours, theirs


@pytest.mark.parametrize("clusters", [None, EVEN, UNEVEN], ids=["alone", "even", "uneven"])
@pytest.mark.parametrize("kind", ["numbers", "yes and no", "rare yes and no", "without spread"])
def test_each_replicate_is_what_it_is_alone(kind: str, clusters: Any) -> None:
    ours, theirs = rows(kind)
    settings: dict[str, Any] = {"binary": True} if kind.endswith("yes and no") else {"bounds": (-1.0, 2.0)}
    together = replace(paired_differences(ours, theirs, clusters, **settings), limit=0.9)
    (low, high), p_values = together.interval_at(0.9), together.p_value
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        alone = paired_difference(a, b, clusters, confidence_level=0.9, **settings)
        assert alone.low is not None and alone.high is not None
        wanted = (max(alone.low, -0.9), min(alone.high, 0.9), alone.p_value)
        assert (low[place], high[place], p_values[place]) == pytest.approx(wanted, abs=1e-12)
