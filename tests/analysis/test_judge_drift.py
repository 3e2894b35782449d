"""What has changed when scores move: the system, the judge or both, in streams whose truth is known."""

from collections import Counter

import numpy as np
import pytest

from evalflows import drift_of
from evalflows.analysis.judge_drift import Drift, drift_text


def streams(seed: int, *, judge: float = 0.0, system: float = 0.0, anchors: int = 800) -> Drift:
    """A yes/no judge that errs in a tenth says yes in a share `judge` of what it sees from the middle on; from there
    on, a share `system` of the answers are wrong that were right. Every fifth judgement is of one of 100 anchors."""
    random, n = np.random.default_rng(seed), 5 * anchors
    is_late = np.arange(n) >= n // 2
    right = random.random(n) < np.where(is_late, 0.75 - system, 0.75)
    said = np.where(random.random(n) < 0.1, ~right, right) | (is_late & (random.random(n) < judge))
    known = np.arange(100) % 2 == 0
    of_anchor = np.where(random.random(100) < 0.1, ~known, known)  # what the judge says of each, but for noise
    numbers = np.concatenate([random.permutation(100) for _ in range(anchors // 100)])
    of_each = np.where(random.random(anchors) < 0.03, ~of_anchor[numbers], of_anchor[numbers])
    of_each |= is_late[2::5] & (random.random(anchors) < judge)
    return drift_of(of_each * 1.0, known[numbers] * 1.0, anchors=numbers.tolist(), scores=said * 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "wanted"),
    [({"judge": 0.3}, "judge"), ({"system": 0.2}, "system"), ({"judge": 0.3, "system": 0.4}, "both")],
)
def test_what_has_changed_is_told_apart(change: dict[str, float], wanted: str) -> None:
    found = Counter(streams(seed, **change).changed for seed in range(20))
    assert found[wanted] >= 18, found  # type: ignore[index]
    assert found.keys() <= {wanted, None, "both"}, "rather nothing than the wrong one"


def test_quiet_streams_and_what_is_said() -> None:
    assert Counter(streams(seed).changed for seed in range(10))["none"] >= 9
    drift = streams(1, judge=0.3)
    assert drift.since == pytest.approx(2_000, abs=400)
    assert drift_text("right", drift).startswith("the judge of right has drifted: on ")
    text = drift_text("right", streams(1, system=0.2))
    assert text.startswith("right: the system has changed, not the judge: scores went from 0.69")
    few = streams(1, system=0.2, anchors=100)
    assert few.changed in ("none", None)
    accepts_all = drift_of([1.0] * 60, [0.0, 1.0, 1.0, 1.0, 1.0, 1.0] * 10)
    assert drift_text("right", accepts_all) == (
        "no evidence of drift of the judge of right on 60 anchors, of which only 10 of bad answers"
    )
    assert drift_text("right", drift_of([1.0] * 40, [1.0] * 40)).endswith("40 anchors, of which none of bad answers")
    assert drift_text("right", drift_of([1.0] * 40, [0.0, 1.0] * 20)).endswith("on 40 anchors")


def test_the_same_anchors_judged_otherwise_are_seen_though_errors_are_as_frequent() -> None:
    random = np.random.default_rng(3)
    known = np.arange(40) % 2
    before, after = known.copy(), known.copy()
    before[:8], after[8:16] = 1 - before[:8], 1 - after[8:16]  # eight errors each, on other anchors
    order = [random.permutation(40) for _ in range(6)]
    judged = np.concatenate([side[numbers] for side, numbers in zip([before] * 3 + [after] * 3, order, strict=True)])
    numbers = np.concatenate(order)
    assert drift_of(judged, known[numbers], anchors=numbers.tolist()).changed == "judge"
    assert drift_of(judged[:120], known[numbers[:120]], anchors=numbers[:120].tolist()).changed == "none"
    assert drift_of([], []).changed == "none"
    with pytest.raises(ValueError, match="got 2 judged and 1 known"):
        drift_of([1, 0], [1])
