"""Latencies of identical targets that take turns are rarely called different, however the endpoint's latency drifts."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest
from in_memory import in_memory, spec_of, values_of

from evalflows.analysis.differences import verdicts_of
from evalflows.analysis.gate_evaluation import GateEvaluation
from evalflows.engine.chunks import in_drawn_order
from evalflows.specs.gate import GateSpec
from evalflows.stats.paired import paired_difference
from evalflows.store.queries.shared_examples import SharedRounds

RUNS, N = 300, 30

Latency = Callable[[float], float]


def drifting(rng: np.random.Generator) -> Latency:
    """Seconds at a time: a slow wave, a jump under load, a cold start, and skewed noise."""
    phase, since, higher = rng.random() * 60, rng.random() * 20, rng.random() * 3

    def latency(time: float) -> float:
        wave = 1 + 0.8 * np.sin((time + phase) / 5)
        load = higher if time > since else 0.0
        return float((wave + load + 5 * np.exp(-time)) * rng.lognormal(0.0, 0.3))

    return latency


def answered(run: int, workers: int, *, blocks: bool) -> np.ndarray:
    """Latencies, of shape (2, N), of two identical targets called by some workers at once: in turns, or one target
    after the other."""
    latency, seconds = drifting(np.random.default_rng([run, workers])), np.zeros((2, N))
    turns: list[tuple[int, Sequence[int]]] = [(one, in_drawn_order((0, 1), run, 0, str(one))) for one in range(N)]
    free = [0.0] * workers
    for example, targets in [(one, [target]) for target in (0, 1) for one in range(N)] if blocks else turns:
        time = heappop(free)
        for target in targets:
            seconds[target, example] = latency(time)
            time += seconds[target, example]
        heappush(free, time)
    return seconds


def called_different(workers: int, *, blocks: bool = False) -> float:
    """The share of runs whose interval excludes 0."""
    found = [paired_difference(*answered(run, workers, blocks=blocks), confidence_level=0.95) for run in range(RUNS)]
    return float(np.mean([not each.low <= 0 <= each.high for each in found if each.low is not None and each.high]))


def test_identical_targets_that_take_turns_are_called_different_in_5_percent_and_in_blocks_far_more_often() -> None:
    assert called_different(4) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / RUNS)
    assert called_different(4, blocks=True) > 0.15


def test_the_pairs_compared_are_those_of_shared_rounds_without_the_first() -> None:
    seconds = np.arange(12.0).reshape(2, 6)
    pair = in_memory(*({"latency": values_of("latency", side)} for side in seconds), spec_of())
    together = np.array([True, True, True, False, True, True])
    warm_up = np.array([True, False, False, False, False, False])
    paired = pair.paired("latency")
    assert paired is not None
    rounds = SharedRounds(together=together, warm_up=warm_up, from_ledger=~together)
    found = paired.side_by_side(rounds).difference(0.95)
    assert (found.n_pairs, found.difference) == (4, -6.0)
    assert found.warning is not None
    said = "1 of 5 pairs left out because they were not made side by side"
    assert found.warning == f"{said}: 1 with an answer from the ledger"


@pytest.mark.parametrize(
    ("rules", "outcome"),
    [
        ({"superiority": ["latency"]}, "open"),
        ({"non_inferiority": {"latency": 0.00005}}, "open"),
        ({"non_inferiority": {"latency": 0.5}}, "met"),
    ],
)
def test_what_takes_less_than_a_millisecond_is_compared_only_with_margins_that_a_clock_can_tell(
    rules: dict[str, Any], outcome: str
) -> None:
    seconds = np.random.default_rng(0).normal([[1e-4], [2e-4]], 1e-5, (2, 60))
    pair = in_memory(*({"latency": values_of("latency", side)} for side in seconds), spec_of())
    (of_run,) = verdicts_of([pair], "holm")
    (rule,) = GateEvaluation(gate=GateSpec.model_validate(rules), pair=pair).rule_results
    assert (of_run.conclusion, of_run.reason_code) == ("not_enough_evidence", "too_brief")
    assert (rule.outcome, rule.reason_code == "too_brief") == (outcome, outcome == "open")


def test_each_target_is_first_about_as_often_and_a_resumed_run_draws_the_same_order() -> None:
    orders = [in_drawn_order((0, 1), "group", 0, str(example)) for example in range(1000)]
    assert 430 < sum(first for first, _ in orders) < 570
    assert orders == [in_drawn_order((0, 1), "group", 0, str(example)) for example in range(1000)]
    assert orders != [in_drawn_order((0, 1), "other", 0, str(example)) for example in range(1000)]
