"""The views of win rates, ratings and judge biases."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compared import Compared

from evalflows.store.catalog import ask_arrow
from evalflows.store.parquet import Store
from evalflows.store.records import CheckRow, RatingRow, VerdictRow, to_json

Make = Callable[..., Any]


def rows(store: Store, query: str) -> list[dict[str, Any]]:
    return ask_arrow(store, query, []).to_pylist()  # type: ignore[no-any-return]


def only(store: Store, columns: str, view: str = "pair_outcomes") -> dict[str, Any]:
    (row,) = rows(store, f"select {columns} from {view}")
    return row


# win_rates


COUNTS = {"wins": 5, "losses": 3, "ties": 2, "half": 1, "flipped": 1, "missing": 4, "left_out": 6}
COUNTS |= {"decided_without_judge": 2}
DISCRETE = {"discrete_standard_error": 0.1, "discrete_low": 0.25, "discrete_high": 0.75}


@pytest.fixture
def written(store: Store) -> Store:
    """A store with one comparison of two experiments."""
    Compared(store).write()
    return store


def verdict(make: Make, **fields: Any) -> VerdictRow:
    of = {"run_group": "cmp-1", "comparison_id": "cmp-1", "metric": "preference", "method": "paired"}
    between = {"candidate_experiment_id": "exp-01", "baseline_experiment_id": "exp-00"}
    row: VerdictRow = make(
        "verdicts", **{**of, **between, "settings": to_json(COUNTS | DISCRETE | {"discrete": 0.5}), **fields}
    )
    return row


def test_a_win_rate_is_half_of_one_and_the_difference(written: Store, make: Make) -> None:
    numbers = {
        "candidate_mean": 0.6,
        "difference": 0.2,
        "ci_low": -0.5,
        "ci_high": 0.75,
        "confidence_level": 0.9,
        "p_value": 0.04,
        "standard_error": 0.2,
    }
    said = {"n_pairs": 10, "n_clusters": 9, "conclusion": "better", "reason": "so", "reason_code": None, "warning": "w"}
    adjusted = {"p_adjusted": 0.08, "adjustment": "holm"}
    written.publish("verdicts", "cmp-1", [verdict(make, **numbers, **said, **adjusted)])
    found = only(written, "*", "win_rates")
    rates = {
        "win_rate": 0.6,
        "win_rate_low": 0.25,
        "win_rate_high": 0.875,
        "confidence_level": 0.9,
        "p_value": 0.04,
        "standard_error": 0.1,
        **adjusted,
    }
    assert found == {
        "comparison_id": "cmp-1",
        "comparison": "old and new",
        "metric": "preference",
        "method": "paired",
        "candidate_experiment_id": "exp-01",
        "baseline_experiment_id": "exp-00",
        "candidate": "new",
        "baseline": "old",
        "slice": "all",
        "length_controlled": False,
        **rates,
        **COUNTS,
        **DISCRETE,
        "discrete_win_rate": 0.5,
        **said,
    }


def test_without_an_interval_or_counts_there_are_none(written: Store, make: Make) -> None:
    written.publish("verdicts", "cmp-1", [verdict(make, settings=None)])
    found = only(written, "win_rate, win_rate_low, win_rate_high, p_value, wins, left_out", "win_rates")
    assert set(found.values()) == {None}


def test_slices_and_what_is_controlled_for_length_stay_apart(written: Store, make: Make) -> None:
    given = [
        verdict(make, verdict_id=f"{slice_}-{controlled}", slice=slice_, length_controlled=controlled)
        for slice_ in (None, "test")
        for controlled in (False, True)
    ]
    written.publish("verdicts", "cmp-1", given)
    found = rows(written, "select slice, length_controlled from win_rates order by all")
    assert [tuple(row.values()) for row in found] == [("all", False), ("all", True), ("test", False), ("test", True)]


def test_verdicts_of_experiments_and_of_gates_are_no_win_rates(written: Store, make: Make) -> None:
    of_gate = verdict(make, verdict_id="a", decision_id="dec-1", run_group="group-1")
    of_experiment = verdict(make, verdict_id="b", comparison_id=None, run_group="group-1")
    written.publish("verdicts", "group-1", [of_gate, of_experiment])
    assert rows(written, "from win_rates") == []


# leaderboard


def rating(make: Make, **fields: Any) -> RatingRow:
    of = {"comparison_id": "cmp-1", "metric": "preference", "experiment_id": "exp-01", "method": "bradley-terry"}
    row: RatingRow = make("ratings", **{**of, **fields})
    return row


def test_a_leaderboard_has_names_beside_ratings(written: Store, make: Make) -> None:
    numbers = {
        "rank": 1,
        "rank_low": 1,
        "rank_high": 2,
        "rating": 1100.0,
        "standard_error": 25.0,
        "ci_low": 1050.0,
        "ci_high": 1150.0,
        "confidence_level": 0.95,
        "reason": None,
        "reason_code": None,
    }
    won = {"win_rate": 0.75, "win_rate_low": 0.5, "win_rate_high": 0.9, "wins": 3, "losses": 1, "ties": 2, "missing": 5}
    won["win_rate_standard_error"] = 0.1
    settings = to_json({"method": "the method", "guarded": False})
    written.publish("ratings", "cmp-1", [rating(make, **numbers, **won, settings=settings)])
    assert only(written, "*", "leaderboard") == {
        "comparison_id": "cmp-1",
        "comparison": "old and new",
        "metric": "preference",
        "experiment_id": "exp-01",
        "experiment": "new",
        "target": "target of new",
        "slice": "all",
        "datasets": ["questions"],
        "method": "the method",
        "guarded": False,
        "guard_reason": None,
        **numbers,
        **won,
    }


def test_a_leaderboard_has_slices_and_one_method(written: Store, make: Make) -> None:
    given = [
        rating(make, rating_id=f"{slice_}-{experiment}-{method}", slice=slice_, experiment_id=experiment, method=method)
        for slice_ in (None, "test")
        for experiment in ("exp-00", "exp-01")
        for method in ("bradley-terry", "elo")
    ]
    written.publish("ratings", "cmp-1", given)
    found = rows(written, "select slice, experiment from leaderboard order by all")
    assert [tuple(row.values()) for row in found] == [("all", "new"), ("all", "old"), ("test", "new"), ("test", "old")]


def test_an_experiment_without_a_rating_has_none_and_a_reason(written: Store, make: Make) -> None:
    written.publish("ratings", "cmp-1", [rating(make, reason="nothing was judged")])
    found = only(written, "rank, rating, win_rate, reason", "leaderboard")
    assert found == {"rank": None, "rating": None, "win_rate": None, "reason": "nothing was judged"}


# judge_biases


def check(make: Make, name: str, **fields: Any) -> CheckRow:
    of = {"check_id": name, "batch_id": "cmp-1", "subject_kind": "judge", "subject_id": "preference", "name": name}
    row: CheckRow = make("checks", **{**of, **fields})
    return row


def test_the_biases_of_a_judge(written: Store, make: Make) -> None:
    observed = to_json({"share": 0.75, "standard_error": 0.1, "low": 0.5, "high": 1, "method": "m"})
    checks = [
        check(make, "position_preference", passed=False, n_checked=8, observed=observed, message="prefers the first"),
        check(make, "self_consistency", observed=to_json({"share": None}), message="asked once"),
    ]
    written.publish("checks", "cmp-1", checks)
    first, second = rows(written, "from judge_biases order by bias")
    assert first == {
        "comparison_id": "cmp-1",
        "comparison": "old and new",
        "metric": "preference",
        "bias": "position_preference",
        "passed": False,
        "n": 8,
        "share": 0.75,
        "kappa": None,
        "standard_error": 0.1,
        "low": 0.5,
        "high": 1.0,
        "method": "m",
        "message": "prefers the first",
        "reason_code": None,
    }
    assert {name: second[name] for name in ("passed", "n", "share", "low", "high", "message")} == {
        **dict.fromkeys(("passed", "n", "share", "low", "high")),
        "message": "asked once",
    }


def test_checks_of_data_and_of_other_judges_are_no_biases(written: Store, make: Make) -> None:
    written.publish("checks", "cmp-1", [check(make, "not_null", subject_kind="snapshot")])
    written.publish("checks", "controls", [check(make, "controls", batch_id="controls")])
    assert rows(written, "from judge_biases") == []


# Queries of the docs about comparisons


DOCS = (Path(__file__).parents[2] / "docs" / "store.md").read_text(encoding="utf-8")
COMPARISONS = DOCS.partition("## Comparisons\n")[2].partition("\n## ")[0]
QUERIES = re.findall(r"```sql\n(.*?)```", COMPARISONS, flags=re.S)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.split(" from ")[0][:40])
def test_a_query_of_the_docs_finds_something(store: Store, make: Make, query: str) -> None:
    compared = Compared(store, examples=["q0", "q1"], both_orders=True)
    compared.answer(0, "q0", "a longer answer than that of the other")
    compared.judge("q0", "left", "left")
    compared.judge("q1", "left", "right")
    compared.write()
    store.publish("ratings", "cmp-1", [rating(make)])
    store.publish("checks", "cmp-1", [check(make, "flip_share", passed=False)])
    assert len(rows(store, query)) == 1
