"""How far a comparison is, what it cost, and that each pair has its row for every metric in the end."""

from collections.abc import Callable
from typing import Any

from compared import Compared

from evalflows.specs.metric_names import MEASURES
from evalflows.store.queries.complete_judgements import complete_judgements
from evalflows.store.queries.progress import item_metrics, nothing_made, open_work, whats_missing, work_done
from evalflows.store.queries.spending import paid
from evalflows.store.records import JudgementRow
from evalflows.store.store import Store

Make = Callable[..., Any]
KINDS = ("unreachable", "rate_limit")


def of(store: Store, *examples: str, comparison_id: str = "cmp-1") -> Compared:
    return Compared(store, examples=examples or ("q0", "q1", "q2"), comparison_id=comparison_id)


def rows(store: Store, comparison_id: str = "cmp-1") -> dict[tuple[str, str, str], JudgementRow]:
    """By metric, example and who was shown first."""
    found = store.read("judgements", comparison_id)
    keyed = {(row.metric, row.example_id, row.shown_first): row for row in found}
    assert len(keyed) == len(found) == len({row.judgement_id for row in found})
    return keyed


def test_item_metrics_are_those_of_the_experiments_and_what_is_measured_of_every_run(store: Store, make: Make) -> None:
    for owner, metric in (("exp-1", "quality"), ("exp-1", "tone"), ("exp-2", "quality"), ("exp-3", "other")):
        score = make("judgements", judgement_id=f"{owner} {metric}", experiment_id=owner, metric=metric)
        store.append("judgements", owner, metric, [score])
    assert item_metrics(store, ["exp-1", "exp-2"]) == ["quality", "tone", *MEASURES]
    assert item_metrics(store, ["exp-9"]) == [*MEASURES]


def test_what_was_paid_are_its_own_calls(store: Store, make: Make) -> None:
    costs = [(0.5, None), (0.25, None), (None, None), (None, 0.125)]
    calls = [*(("cmp-1", *cost) for cost in costs), ("cmp-2", 9.0, None), ("exp-1", 9.0, None)]
    for number, (owner, cost, estimate) in enumerate(calls):
        fields = {"experiment_id": owner, "cost_usd": cost, "estimated_usd": estimate}
        store.append("calls", owner, f"p{number}", [make("calls", call_id=f"call-{number}", **fields)])
    assert paid(store, "cmp-1") == (4, 0.875, 0.125, 1)
    assert paid(store, "cmp-9") == (0, 0.0, 0.0, 0)


def test_open_is_what_was_not_attempted_or_failed_by_what_may_pass(store: Store) -> None:
    one = of(store, *(f"q{i}" for i in range(6)))
    one.judge("q0", "left")
    one.judge("q1", "not_attempted", error_kind="over_budget")
    one.judge("q2", "failed", error_kind="unreachable")
    one.judge("q3", "failed", error_kind="bad_return")
    one.judge("q4", "not_applicable")
    one.judge("q5", "left_out")
    one.answer(0, "q5", None)  # else the pair could be judged by now
    one.write(sealed=False)
    assert open_work(store, "cmp-1", KINDS) == 2
    assert open_work(store, "cmp-1", ()) == 1
    assert open_work(store, "cmp-2", KINDS) == 0


def test_what_lacks_is_said_for_each_evaluator_with_the_reasons(store: Store) -> None:
    one, tried = of(store), of(store, comparison_id="cmp-2")
    one.judge("q0", "left", "left", metric="judge")
    one.judge("q1", "left", "not_attempted", metric="judge", error="over budget", error_kind="over_budget")
    one.judge("q0", "failed", "left_out", metric="rule", error_kind="raised")
    one.write(sealed=False)
    lacking = whats_missing(store, "cmp-1", work_done(store, "cmp-1"), ["judge", "rule", "new"], 6)
    assert lacking == "not done: 3 of 6 by judge, 4 of 6 by rule, 6 of 6 by new (over budget)"
    tried.judge("q0", "left")
    tried.judge("q1", "failed", error_kind="unreachable")
    tried.judge("q2", "not_attempted", error_kind="no_output")
    tried.write(sealed=False)
    assert whats_missing(store, "cmp-2", work_done(store, "cmp-2"), ["preference"], 3) is None
    assert (
        whats_missing(store, "cmp-2", work_done(store, "cmp-2"), ["preference"], 4) == "not done: 1 of 4 by preference"
    )


def test_an_evaluator_that_judged_nothing_is_told_with_its_most_frequent_error(store: Store) -> None:
    one = of(store, "q0", "q1", "q2", "q3")
    for example, why in (("q0", "HTTP 500: down"), ("q1", "HTTP 500: down"), ("q2", "no route")):
        one.judge(example, "failed", metric="down", error=why, error_kind="unreachable")
        one.judge(example, "failed", metric="raises", error="boom", error_kind="raised")
        one.judge(example, "left" if example == "q0" else "failed", metric="partly", error_kind="unreachable")
    one.judge("q3", "left unasked", metric="down")
    one.write(sealed=False)
    assert nothing_made(store, "cmp-1", work_done(store, "cmp-1", KINDS)) == {
        "down judged none of 3 pairs": "HTTP 500: down"
    }
    assert nothing_made(store, "cmp-1", work_done(store, "cmp-1", ("raised",))) == {
        "raises judged none of 3 pairs": "boom"
    }
    assert nothing_made(store, "cmp-1", work_done(store, "cmp-1", ())) == {}


def test_a_failure_becomes_one_row_for_each_metric_given_elsewhere_and_is_paid_once(store: Store) -> None:
    one = of(store)
    for metric in ("tone", "style"):
        one.judge("q0", "left", "right", metric=metric, evaluator="judge")
    one.judge("q1", "failed", "failed", metric="judge", cost_usd=0.25)
    one.judge("q2", "left unasked", metric="judge")
    one.judge("q0", "tie", metric="other")
    one.write(sealed=False)
    complete_judgements(store, "cmp-1")
    found = rows(store)
    assert {key for key in found if key[1] == "q1"} == {
        (metric, "q1", side) for metric in ("tone", "style") for side in ("left", "right")
    }
    assert {(key[0], row.winner, row.decided_by) for key, row in found.items() if key[1] == "q2"} == {
        ("tone", "left", "failed_output"),
        ("style", "left", "failed_output"),
    }
    assert [row.error for key, row in found.items() if key[1] == "q1"] == ["boom"] * 4
    assert sum(row.cost_usd or 0.0 for key, row in found.items() if key[1] == "q1") == 0.5
    assert sum(row.calls for key, row in found.items() if key[1] == "q1") == 2
    assert found["other", "q0", "left"].winner == "tie" and ("judge", "q1", "left") not in found
    complete_judgements(store, "cmp-1")
    assert rows(store) == found, "once more changes nothing"
