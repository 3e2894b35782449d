"""A comparison in batches: it stops once every win rate is decided, by intervals that hold at each look."""

from itertools import pairwise

import numpy as np
import pandas as pd
from comparing import longer
from matched import FAILED, asked, experiment, rows_of, spec_of

from evalflows.analysis.win_rates import Look, conclusion_of, look_at
from evalflows.engine.order import waves_of
from evalflows.engine.pair_trials import pair_chunks
from evalflows.engine.pairs import compared_examples, experiments_of
from evalflows.reports.comparison import comparison_report
from evalflows.reports.markdown_pages import after_comparison
from evalflows.specs.comparison import ComparisonSpec
from evalflows.stats.sequential import confidence_sequence
from evalflows.store.row_specs import comparison_spec
from evalflows.store.store import Store
from evalflows.tasks.compare import check_and_resolve, compute_win_rates, why_comparison_stops
from evalflows.tasks.finish import finish
from evalflows.tasks.start import start_comparison
from evalflows.tasks.work_through import judge

N, BATCH = 100, 20
NAMES = [f"q{i:03}" for i in range(N)]
VERDICT = """select n_pairs, difference, ci_low, ci_high, p_value, method, conclusion from verdicts
             where slice is null and not length_controlled order by candidate_experiment_id"""


def in_batches(spec: ComparisonSpec, resume: str | None = None) -> tuple[str, str | None, int]:
    """Compare as the flow does, without Prefect; the comparison's id, why it stopped, and after how many batches."""
    run, stopped, made = check_and_resolve(spec), None, 0
    row = start_comparison.fn(run, resume)
    for wave in waves_of(list(pair_chunks(row)), spec.batch):
        made += 1
        for chunk in wave:
            judge.fn(run, chunk)
        if resume is None and (stopped := why_comparison_stops.fn(run, row)):
            break
    assert finish.fn(run, [row], stopped) == []
    compute_win_rates.fn(run, row)
    return row.comparison_id, stopped, made


def experiments(worse: int, *, failed: int = 0) -> list[str]:
    """An old and a new one, whose answer is longer but for the first examples, `worse` of them; and `failed` ones."""
    rows = [row | {"cluster": f"c{place // 3}"} for place, row in enumerate(rows_of(NAMES))]
    new = {name: FAILED if i >= N - failed else "x" if i < worse else "xxx" for i, name in enumerate(NAMES)}
    return [
        experiment("old", dict.fromkeys(NAMES, "xx"), place=0, rows=rows),
        experiment("new", new, place=1, rows=rows),
    ]


def test_a_decided_comparison_stops_and_the_rest_is_judged_when_it_is_resumed() -> None:
    spec = spec_of(experiments(worse=10), longer, batch=BATCH)
    identity, stopped, batches = in_batches(spec)
    assert batches == 2 and stopped == "stopped after 40 of 100 examples: every win rate was decided"
    ((pairs, difference, low, high, p, method, conclusion),) = asked(VERDICT)
    assert (pairs, p, method, conclusion) == (40, None, "betting", "better") and 0 < low < difference <= high
    assert asked("select state, reason, judged from comparison_overview") == [("completed", stopped, 40)]
    report = comparison_report(Store(), identity)
    assert after_comparison(Store(), report.overview).code.startswith("`evalflows sql"), "its pairs"
    assert not any("missing" in one for one in report.remarks)
    assert asked("select count(*) from ratings where ci_low is not null or rank_low is not null") == [(0,)]
    assert in_batches(spec, resume=identity)[1:] == (None, 5)
    ((pairs, difference, narrower, _, _, method, conclusion),) = asked(VERDICT)
    assert (pairs, difference, method, conclusion) == (100, 0.8, "betting", "better") and narrower > low
    assert asked("select state, reason, judged from comparison_overview") == [("completed", None, 100)]


def test_an_open_comparison_runs_to_its_end() -> None:
    _, stopped, batches = in_batches(spec_of(experiments(worse=45), longer, batch=BATCH))
    assert (stopped, batches) == (None, 5)
    ((pairs, *_, conclusion),) = asked(VERDICT)
    assert (pairs, conclusion) == (100, "not_enough_evidence")


def test_examples_are_looked_at_in_the_order_of_judging_and_clusters_as_a_whole() -> None:
    spec = spec_of(experiments(worse=0), longer, batch=BATCH)
    run = check_and_resolve(spec)
    row = start_comparison.fn(run)
    examples = compared_examples(Store(), comparison_spec(row), experiments_of(Store(), row.experiments))
    order = list(examples.ids)
    assert order != sorted(order) and set(order) == set(NAMES)
    assert all(order.index(b) - order.index(a) == 1 for a, b in pairwise(NAMES) if int(a[1:]) // 3 == int(b[1:]) // 3)
    look = look_at(row, examples, frozenset(order[:59]))  # two whole batches; the third lacks one
    assert [*look.places] == order[: look.n_seen] and 37 < look.n_seen <= 40
    assert examples.clusters[look.n_seen] != examples.clusters[look.n_seen - 1]
    assert look_at(row, examples, frozenset(order[:19])).n_seen == 0
    assert look_at(row, examples, frozenset(order)).is_last


def outcomes(points: list[float]) -> pd.DataFrame:
    names = NAMES[: len(points)]
    return pd.DataFrame({"example_id": names, "points": points, "status": "scored"}).iloc[::-1]


def test_the_interval_is_that_of_the_values_in_order_and_missing_ones_are_taken_at_their_worst() -> None:
    points = [1.0] * 12 + [0.0, 0.5] + [1.0] * 6
    look = Look(places={name: i for i, name in enumerate(NAMES[:20])}, clusters=dict.fromkeys(NAMES))
    test = look.test(outcomes(points), 0.95, None)
    expected = confidence_sequence(2 * np.array(points) - 1, bounds=(-1.0, 1.0), confidence_level=0.95)
    assert (test.estimate.low, test.estimate.high) == (expected.low[-1], expected.high[-1])
    assert conclusion_of(test, look.test(outcomes(points), 0.99, None), 5).conclusion == "better"
    strict = conclusion_of(test, look.test(outcomes(points), 1 - 1e-9, None), 10)
    assert strict.reason_code == "not_significant_after_adjustment"
    some = look.test(outcomes([float("nan")] * 12 + points[12:]), 0.95, None)
    assert some.n_missing == 12 and some.estimate.n_pairs == 8
    assert some.lowest is not None and some.highest is not None
    assert some.lowest.low < 0 < some.highest.high  # type: ignore[operator]
    assert conclusion_of(some, some, 1).conclusion == "not_enough_evidence"
    nothing = look.of_examples(frozenset()).test(outcomes([]), 0.95, None)
    assert conclusion_of(nothing, nothing, 1).reason == "no batch of pairs has been judged yet"
