"""Votes: what a row may say, what is refused, and which judgement it becomes."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_rows import make_row

from evalflows.engine.votes import Votes, judgements_of, read_votes, voted_examples
from evalflows.specs.comparison import VotesSpec
from evalflows.specs.errors import InputError
from evalflows.store.records import JudgementRow

Row = Mapping[str, Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def votes(*rows: Row, **spec: Any) -> Votes:
    Path("votes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_votes(VotesSpec(path="votes.jsonl", **spec))


def vote(first: str = "b", second: str = "a", **fields: Any) -> Row:
    return {"first": first, "second": second, **(fields or {"winner": "first"})}


def judgements(found: Votes) -> list[JudgementRow]:
    return list(judgements_of(found, make_row("comparison_sets", comparison_id="cmp-1", experiments=found.systems)))


def test_a_vote_is_a_judgement_of_its_pair() -> None:
    for verdict, winner, scores in (
        ({"winner": "first"}, "right", (None, None)),  # b was shown first, and a is left
        ({"winner": "second"}, "left", (None, None)),
        ({"winner": "a"}, "left", (None, None)),
        ({"winner": "tie (bothbad)"}, "tie", (None, None)),
        ({"scores": [0.7, 0.3]}, "right", (0.3, 0.7)),
        ({"scores": [1, 1]}, "tie", (1.0, 1.0)),
    ):
        (row,) = judgements(votes(vote(**verdict)))
        assert (row.left_experiment_id, row.right_experiment_id, row.shown_first) == ("a", "b", "right")
        assert (row.winner, (row.left_score, row.right_score), row.status) == (winner, scores, "scored")
        assert (row.weight, row.metric, row.calls) == (1.0, "votes", 0)
    for status, kind in (("failed", "raised"), ("not_applicable", None)):
        (row,) = judgements(votes(vote(winner=None, status=status)))
        assert (row.status, row.winner, row.error_kind) == (status, None, kind)


def test_votes_on_one_pair_and_prompt_are_counted_apart() -> None:
    same = [vote(prompt="p", winner="a"), vote("a", "b", prompt="p", winner="b"), vote(prompt="q", winner="a")]
    rows = judgements(votes(*same))
    assert [(row.example_id, row.repetition) for row in rows] == [("p", 0), ("p", 1), ("q", 0)]
    assert len({row.judgement_id for row in rows}) == len({row.left_run_id for row in rows}) == 3


def test_the_order_is_known_if_both_occur_or_if_that_is_said() -> None:
    drawn = vote(winner="a", order="drawn")
    for rows, given, status in (
        ([vote(), vote()], {}, "unknown"),
        ([vote(), vote("a", "b")], {}, "known"),
        ([vote(), vote("a", "b")], {"order": "drawn"}, "drawn"),
        ([vote(), vote()], {"order": "known"}, "known"),
        ([drawn, drawn], {"order": "known"}, "drawn"),
    ):
        assert {row.order_status for row in judgements(votes(*rows, **given))} == {status}


def test_columns_may_have_other_names_and_the_rest_is_metadata() -> None:
    columns = {"first": "model_a", "second": "model_b", "prompt": "question_id", "winner": "said"}
    row = {"model_a": "b", "model_b": "a", "question_id": 7, "said": "model_b", "language": "de"}
    found = votes(row, columns=columns)
    (judged,) = judgements(found)
    assert (judged.winner, judged.example_id) == ("left", "7")
    (example,) = voted_examples([judged])
    assert (example.example_id, example.metadata) == ("7", '{"language":"de"}')


def test_every_format_says_the_same() -> None:
    row = {"prompt": "p", "first": "b", "second": "a", "winner": "a", "weight": "2.5", "scores": "[0.2, 0.8]"}
    with Path("votes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([row, row.values()])
    Path("votes.json").write_text(json.dumps([row]))
    pq.write_table(pa.Table.from_pylist([row]), "votes.parquet")
    for suffix in ("csv", "json", "parquet"):
        (found,) = judgements(read_votes(VotesSpec(path=f"votes.{suffix}")))
        assert (found.winner, found.left_score, found.weight) == ("left", 0.8, 2.5)


BAD: list[tuple[Row, str]] = [
    ({"first": "a", "winner": "a"}, "got first, winner, wanted 'second', or its column under votes.columns.second"),
    (vote("a", "a"), "got 'a' as first and as second, wanted two systems"),
    (vote(winner="c"), "winner: got 'c', wanted b, a, tie, or first, second, A, B, 1, 2, 0"),
    (vote(comment="no"), "got first, second, comment, wanted 'winner' or 'scores', or a status (failed or"),
    (vote(winner="a", scores=[1, 0]), "got the winner second with the scores [1.0, 0.0], wanted them to agree"),
    (vote(scores=[1]), "got the scores [1], wanted 2"),
    (vote(scores="much"), "got the scores 'much', wanted 2"),
    (vote(winner="a", weight=0), "weight: got 0, wanted a number above 0"),
    (vote(winner="a", order="random"), "order: got 'random', wanted known, drawn, unknown"),
]


def test_a_row_that_is_no_vote_and_a_file_without_votes_are_refused() -> None:
    for row, message in BAD:
        with pytest.raises(InputError) as caught:
            votes(vote(), row)
        assert str(caught.value).startswith("votes: votes.jsonl:2: ") and message in str(caught.value)
    with pytest.raises(InputError, match=r"votes: votes\.jsonl: got no votes, wanted at least one"):
        votes()
    with pytest.raises(InputError, match=r"gone\.jsonl: cannot be read"):
        read_votes(VotesSpec(path="gone.jsonl"))
