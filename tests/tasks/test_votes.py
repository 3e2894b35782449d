"""Comparisons of votes: rows without a grid, weights, clusters by prompt, slices, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from matched import asked

from evalflows.reports.comparison import comparison_report
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import InputError
from evalflows.stats.means import linearised
from evalflows.stats.paired import paired_difference
from evalflows.store.records import ComparisonSetRow
from evalflows.store.store import Store
from evalflows.tasks.compare import check_and_resolve, compute_win_rates, record_votes
from evalflows.tasks.finish import finish
from evalflows.tasks.start import start_comparison


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_root: Path) -> None:
    monkeypatch.chdir(tmp_path)


def wins(winner: str, loser: str, n: int, **fields: Any) -> list[dict[str, Any]]:
    """Votes in alternating order, each on a prompt of its own."""
    sides = [(winner, loser), (loser, winner)]
    return [{"first": sides[i % 2][0], "second": sides[i % 2][1], "winner": winner, **fields} for i in range(n)]


def compared(rows: list[dict[str, Any]], **changes: Any) -> ComparisonSetRow:
    Path("votes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run = check_and_resolve(ComparisonSpec.model_validate({"votes": "votes.jsonl", "name": "arena", **changes}))
    row = start_comparison.fn(run)
    record_votes.fn(run, row)
    finish.fn(run, [row])
    (ended,) = Store().read("comparison_sets", row.comparison_id)
    compute_win_rates.fn(run, ended)
    return ended


def test_votes_are_rows_and_pairs_that_never_met_are_none() -> None:
    row = compared([*wins("a", "b", 20), *wins("b", "c", 12), *wins("c", "b", 8), *wins("d", "c", 9)])
    assert (row.state, row.reason, row.n_votes, row.experiments) == ("completed", None, 49, ["a", "b", "c", "d"])
    assert asked("select planned, judged, missing from comparison_overview") == [(49, 49, 0)]
    rates = asked("select candidate, baseline, win_rate, wins, losses, conclusion from win_rates order by 1, 2")
    assert rates == [
        ("b", "a", 0.0, 0, 20, "worse"),
        ("c", "b", 0.4, 8, 12, "not_enough_evidence"),
        ("d", "c", 1.0, 9, 0, "better"),
    ]
    assert asked("select experiment from leaderboard where rank = 1") == [("a",)]


def test_weights_and_prompts_count_as_the_weighted_mean_of_clusters() -> None:
    votes = [
        {"first": "a", "second": "b", "winner": "a" if i % 3 else "b", "prompt": f"p{i // 4}", "weight": 1 + i % 5}
        for i in range(80)
    ]
    compared(votes, baseline="b")
    points, weights = [1.0 if vote["winner"] == "a" else 0.0 for vote in votes], [vote["weight"] for vote in votes]
    values = linearised(points, weights)
    wanted = paired_difference(values, 1 - values, [vote["prompt"] for vote in votes])
    query = "select win_rate, standard_error * 2, 2 * win_rate_low - 1, p_value, n_pairs, n_clusters from win_rates"
    ((rate, *found, n, clusters),) = asked(query)
    assert rate == pytest.approx(sum(p * w for p, w in zip(points, weights, strict=True)) / sum(weights))
    assert found == pytest.approx([wanted.standard_error, wanted.low, wanted.p_value])
    assert (n, clusters) == (80, 20)


def test_other_columns_are_slices() -> None:
    compared([*wins("a", "b", 12, topic="x"), *wins("b", "a", 12, topic="y")], slice_by=["metadata.topic"])
    rates = asked("select slice, candidate, win_rate, conclusion from win_rates order by slice")
    assert rates == [
        ("all", "b", 0.5, "not_enough_evidence"),
        ("metadata.topic=x", "b", 0.0, "worse"),
        ("metadata.topic=y", "b", 1.0, "better"),
    ]


def test_graded_votes_have_their_mean_as_the_win_rate_and_the_discrete_one_beside_it() -> None:
    grades = [0.51] * 40 + [0.05] * 20
    votes = [{"first": "new", "second": "old", "scores": [grade, 1 - grade]} for grade in grades]
    compared(votes, baseline="old", votes={"path": "votes.jsonl", "order": "drawn"})
    ((rate, error, conclusion, discrete, *counts),) = asked(
        "select win_rate, standard_error, conclusion, discrete_win_rate, wins, ties, losses from win_rates"
    )
    wanted = paired_difference(grades, [1 - grade for grade in grades], bounds=(0, 1))
    assert rate == pytest.approx(sum(grades) / 60) == pytest.approx(0.3567, abs=1e-4)
    assert error == pytest.approx((wanted.standard_error or 0) / 2)
    assert (conclusion, discrete, counts) == ("worse", pytest.approx(2 / 3), [40, 0, 20])
    (identity,) = asked("select comparison_id from comparison_sets")[0]
    sentences = comparison_report(Store(), identity).sentences
    assert any("counted as wins, ties and losses it is 67%" in sentence for sentence in sentences)


def test_an_unknown_order_is_a_reservation_and_a_known_one_excludes_what_was_always_first() -> None:
    votes = [{"first": "a", "second": "b", "winner": "a" if i % 10 else "b"} for i in range(60)]
    row = compared(votes)
    rates = "select conclusion, reason_code, warning from win_rates where comparison_id = ?"
    ((conclusion, _, warning),) = asked(rates, row.comparison_id)
    assert (conclusion, warning.startswith("the order in which the answers were shown is unknown")) == ("worse", True)
    report = comparison_report(Store(), row.comparison_id)
    said = [text for text in [*report.sentences, *(bias.text for bias in report.known_biases)] if "unknown" in text]
    assert len(said) == 1
    excluded = ("not_enough_evidence", "one_presentation_order", None)
    for order, wanted in (("known", excluded), ("drawn", ("worse", None, None))):
        row = compared(votes, votes={"path": "votes.jsonl", "order": order})
        assert asked(rates, row.comparison_id) == [wanted]


def test_each_metric_has_results_adjusted_together() -> None:
    compared([*wins("a", "b", 12, metric="style"), *wins("b", "a", 7, metric="truth")])
    found = asked("select metric, win_rate, p_value, p_adjusted from win_rates order by 1")
    assert [(metric, rate) for metric, rate, *_ in found] == [("style", 0.0), ("truth", 1.0)]
    (style, style_adjusted), (truth, truth_adjusted) = ((p, adjusted) for *_, p, adjusted in found)
    assert style_adjusted == pytest.approx(2 * style) and truth_adjusted == pytest.approx(truth)


def test_what_cannot_work_is_refused_with_nothing_written() -> None:
    for changes, message in (
        ({"baseline": "z"}, "baseline: got 'z', wanted a system of votes.jsonl: a, b"),
        ({"experiments": ["a", "z"]}, "experiments: got 'z', wanted a system of votes.jsonl: a, b"),
        ({"votes": "gone.jsonl"}, "gone.jsonl: cannot be read: No such file or directory"),
    ):
        with pytest.raises(InputError) as caught:
            compared(wins("a", "b", 3), **changes)
        assert str(caught.value) == message
    assert asked("select * from comparison_sets") == []
    compared(wins("a", "b", 3), run_key="k")
    with pytest.raises(InputError, match=r"then with evaluators votes@.*; wanted a run_key other than 'k'"):
        compared(wins("a", "b", 4), run_key="k")
