"""recorded_preference: which recorded verdict is found for a pair, and which files are refused."""

import builtins
import csv
import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evalflows.evaluators.binding import bind
from evalflows.evaluators.pairwise import recorded_preference
from evalflows.evaluators.score import Preference, preferences
from evalflows.evaluators.views import ExampleView, RunView, offer_pair

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def recorded(*rows: Mapping[str, Any], path: str = "votes.jsonl") -> str:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row(first: str = "old", second: str = "new", example_id: str = "e1", **verdict: Any) -> Row:
    return {"example_id": example_id, "first": first, "second": second, **(verdict or {"winner": "first"})}


def run(name: str, target: str = "", repetition: int = 0) -> RunView:
    return RunView(id=f"run-{name}", inputs={}, outputs={}, repetition=repetition, experiment=name, target=target)


def replayed(
    path: str, first: RunView | str = "old", second: RunView | str = "new", example_id: str = "e1", **args: Any
) -> Preference:
    """As a comparison calls it: bound, offered two runs in an order, and read."""
    runs = [run(one) if isinstance(one, str) else one for one in (first, second)]
    bound = bind(recorded_preference, settings={"path": path} | args, scope="pair")
    assert not bound.is_async
    returned = bound.call(offer_pair(ExampleView(id=example_id, inputs={}), *runs))
    (one,) = preferences(returned, bound.name, [one.id for one in runs])
    assert one.key == "recorded_preference"
    return one


TURNED = {"first": "second", "second": "first", "tie": "tie"}


@pytest.mark.parametrize(
    ("verdict", "winner", "scores"),
    [
        ({"winner": "first"}, "first", None),
        ({"winner": "tie"}, "tie", None),
        ({"winner": "b"}, "second", None),
        ({"winner": 2}, "second", None),
        ({"winner": 0}, "tie", None),
        ({"scores": [0, 1]}, "second", (0.0, 1.0)),
        ({"scores": [0, 0]}, "tie", (0.0, 0.0)),
        ({"scores": [2.5, 4], "winner": "B"}, "second", (2.5, 4.0)),
    ],
)
def test_a_verdict_is_said_again_and_turned_round_where_it_was_given_in_the_other_order(
    verdict: Row, winner: str, scores: tuple[float, float] | None
) -> None:
    path = recorded(row(**verdict, comment="as I see it"))
    same, turned = replayed(path, "old", "new"), replayed(path, "new", "old")
    assert (same.winner, same.scores, same.comment) == (winner, scores, "as I see it")
    assert (turned.winner, turned.scores) == (TURNED[winner], None if scores is None else scores[::-1])
    assert turned.comment == "as I see it"
    assert same.metadata == turned.metadata == {"recorded": "votes.jsonl:1", "recorded_first": "old"}
    assert (same.repeats, same.agreement, same.prompt_hash) == (None, None, None)


def test_each_example_pair_and_repetition_has_its_own_in_the_order_that_is_shown() -> None:
    path = recorded(row("old", "new", winner="A"), row("new", "old", winner="A"))
    assert replayed(path, "old", "new").winner == replayed(path, "new", "old").winner == "first"
    path = recorded(row("old", "new", winner="A", comment="1"), row("new", "old", winner="B", comment="2"))
    assert [replayed(path, *pair).comment for pair in (("old", "new"), ("new", "old"))] == ["1", "2"]
    path = recorded(
        row(winner="first"),
        row(example_id="e2", winner="second"),
        row(second="newest", winner="tie"),
        row(first="new", second="newest", winner="second"),
    )
    assert replayed(path, "old", "new").winner == "first"
    assert replayed(path, "old", "new", "e2").winner == "second"
    assert replayed(path, "newest", "old").winner == "tie"
    assert replayed(path, "newest", "new").winner == "first"
    path = recorded(row(winner="tie"), row(winner="A", repetition=1), row(winner="B", repetition=2))
    winners = [replayed(path, run("old", repetition=n), run("new", repetition=n)).winner for n in range(4)]
    assert winners == ["tie", "first", "second", "tie"]
    path = recorded(row(winner="A", repetition=1))
    assert replayed(path, run("new", repetition=1), run("old", repetition=1)).winner == "second"
    with pytest.raises(LookupError):
        replayed(path, "old", "new")


def test_names_are_those_of_experiments_or_of_targets_and_the_order_counts_before() -> None:
    old, new = run("exp-1", "small"), run("exp-2", "large")
    for first, second in (("exp-1", "exp-2"), ("small", "large"), ("exp-1", "large"), ("small", "exp-2")):
        path = recorded(row(first, second, winner="second"))
        assert (replayed(path, old, new).winner, replayed(path, new, old).winner) == ("second", "first")
    alike = run("exp-2", "small")
    path = recorded(row("exp-1", "exp-2", winner="second"))
    assert replayed(path, old, alike).winner == "second"
    with pytest.raises(LookupError):
        replayed(recorded(row("small", "large")), old, alike)
    old, new = run("exp-1", "small"), run("exp-2", "large")
    path = recorded(row("exp-2", "exp-1", winner="first"), row("small", "large", winner="first"))
    assert replayed(path, old, new).winner == "first"
    assert replayed(path, new, old).winner == "first"


@pytest.mark.parametrize(("first", "second", "example_id"), [("old", "new", "e9"), ("old", "other", "e1")])
def test_a_pair_without_a_verdict_is_an_error_that_names_it_and_no_tie(
    first: str, second: str, example_id: str
) -> None:
    with pytest.raises(LookupError) as raised:
        replayed(recorded(row()), first, second, example_id)
    assert str(raised.value) == f"votes.jsonl has no verdict on example {example_id!r} for {first!r} against {second!r}"


def test_the_order_is_known_if_both_occur_or_if_that_is_said() -> None:
    one, other = row(winner="A"), row("new", "old", "e2", winner="A")
    for rows, args, status in (
        ([one], {}, "unknown"),
        ([one, other], {}, "known"),
        ([one], {"order": "known"}, "known"),
        ([one, other], {"order": "drawn"}, "drawn"),
    ):
        found = replayed(recorded(*rows), **args)
        assert (found.winner, found.order_status) == ("first", status)
    with pytest.raises(ValueError, match="order: got 'random', wanted one of known, drawn, unknown"):
        replayed(recorded(one), order="random")


def test_a_row_without_a_verdict_is_missing_with_its_place_or_does_not_apply_and_needs_a_status() -> None:
    assert replayed(recorded(row(winner=None, status="not_applicable"))).status == "not_applicable"
    for winner in ({}, {"winner": None}):
        path = recorded(row(**winner, status="failed", comment="no answer"))
        for order in (("old", "new"), ("new", "old")):
            with pytest.raises(LookupError, match=r"votes\.jsonl:1: recorded without a verdict: no answer"):
                replayed(path, *order)
    for status in (None, "scored", "lost"):
        with pytest.raises(ValueError, match=r"wanted 'winner' or 'scores', or a status \(failed or not_applicable\)"):
            replayed(recorded(row(winner=None, status=status)))


VERDICTS = [
    row(winner="B", comment="ü, and more"),
    row(example_id="e2", scores=[1, 0.5]),
    row("new", "old", repetition=3, winner="0"),
]


def as_csv(rows: list[Row]) -> str:
    names = ["example_id", "first", "second", "winner", "scores", "comment", "repetition", "who"]
    with Path("cells.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(
            [one | {"scores": json.dumps(one["scores"]) if "scores" in one else "", "who": "Ada"} for one in rows]
        )
    return Path("cells.csv").read_text(encoding="utf-8")


def test_jsonl_and_csv_packed_or_not_say_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines, cells = "\n".join(map(json.dumps, VERDICTS)) + "\n\n", as_csv(VERDICTS)
    monkeypatch.setenv("VOTES", str(tmp_path))
    for text, ending in ((lines, ".jsonl"), (lines, ".NDJSON"), (cells, ".csv")):
        Path(f"votes{ending}").write_text(text, encoding="utf-8")
        Path(f"votes{ending}.gz").write_bytes(gzip.compress(text.encode()))
        for path in (f"votes{ending}", f"votes{ending}.gz", f"${{VOTES}}/votes{ending}"):
            one = replayed(path, "old", "new")
            assert (one.winner, one.comment, one.scores) == ("second", "ü, and more", None), path
            assert replayed(path, "new", "old", "e2").scores == (0.5, 1.0), path
            assert replayed(path, run("new", repetition=3), run("old", repetition=3)).winner == "tie", path


def test_a_file_is_read_once_and_again_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    really_open = builtins.open

    def counting(path: Any, *rest: Any, **more: Any) -> Any:
        opened.append(path)
        return really_open(path, *rest, **more)

    monkeypatch.setattr(builtins, "open", counting)
    path = recorded(row(winner="A"))
    about = Path(path).stat()
    assert [replayed(path, "old", "new").winner for _ in range(3)] == ["first"] * 3
    assert len(opened) == 1
    recorded(row(winner="B"))  # as long as before
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    assert replayed(path, "old", "new").winner == "second"
    assert len(opened) == 2


REFUSED: list[tuple[Any, str]] = [
    (
        [row(), row()],
        "votes.jsonl:2: got a second verdict on 'old' against 'new', example 'e1', wanted one verdict, or a",
    ),
    (
        [row(), {"first": "a", "second": "b", "winner": "A"}],
        "votes.jsonl:2: got first, second, winner, wanted 'example_id'",
    ),
    (
        [{"example_id": "e", "first": "a", "winner": "A"}],
        "votes.jsonl:1: got example_id, first, winner, wanted 'second'",
    ),
    ([row("x", "x")], "votes.jsonl:1: got 'x' as first and as second, wanted two names"),
    (
        [row(winner="older")],
        "votes.jsonl:1: winner: got 'older', wanted old, new, tie, or first, second, A, B, 1, 2, 0",
    ),
    ([row(scores=[1])], "votes.jsonl:1: got the scores [1], wanted 2"),
    (
        [row(scores=[1, 0], winner="B")],
        "votes.jsonl:1: got the winner second with the scores [1.0, 0.0], wanted them to",
    ),
    ([row(repetition=-1, winner="A")], "votes.jsonl:1: repetition: got -1, wanted a whole number from 0"),
    ([[1]], "votes.jsonl:1: got [1], wanted an object"),
]


@pytest.mark.parametrize(("rows", "message"), REFUSED)
def test_a_row_that_is_no_verdict_is_an_error_at_its_line(rows: Any, message: str) -> None:
    path = recorded(*rows)
    for _ in range(2):  # whoever comes second is told too
        with pytest.raises(ValueError) as raised:
            replayed(path, "old", "new")
        assert str(raised.value).startswith(f"path: {message}") and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("none.jsonl", None, "none.jsonl: cannot be read: No such file or directory"),
        ("votes.parquet", b"PAR1", "votes.parquet: got .parquet, wanted one of .jsonl, .ndjson, .csv"),
        ("votes.jsonl", b"{", "votes.jsonl:1: not JSON: "),
        ("votes.jsonl", b"\xff\n", "votes.jsonl: cannot be read: 'utf-8' codec"),
        ("votes.jsonl.gz", b"{}", "votes.jsonl.gz: cannot be read: Not a gzipped file"),
        ("votes.csv", b"example_id,first,second,winner\ne1,old,new,A,B\n", "votes.csv:2: wanted 4 cells"),
        ("votes.csv", b'example_id,first\n"e1,old\n', "votes.csv: cannot be read: "),
        ("${NO_SUCH_VARIABLE}/v.jsonl", None, "${NO_SUCH_VARIABLE}/v.jsonl: the environment variable NO_SUCH_VARIABLE"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_in_one_line(path: str, content: bytes | None, message: str) -> None:
    if content is not None:
        Path(path).write_bytes(content)
    with pytest.raises(ValueError) as raised:
        replayed(path, "old", "new")
    assert str(raised.value).startswith(f"path: {message}") and "\n" not in str(raised.value)
