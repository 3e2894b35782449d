"""evalflows export preferences, in this process; the other exports: tests/store/exports."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from compared import Compared

from evalflows.cli.main import cli
from evalflows.specs.errors import InputError
from evalflows.store import Store
from evalflows.store.queries.labels import preferences_of


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def compared() -> Compared:
    """One preference by `preference`, of three pairs; two metrics of which another has none."""
    compared = Compared(Store(), examples=["q0", "q1", "q2"], both_orders=True)
    compared.answer(0, "q0", "schön\nund gut")
    compared.judge("q0", "left", "left")
    compared.judge("q1", "left", "right")
    compared.judge("q2", "tie", "tie")
    return compared


def export(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["export", "preferences", *arguments])


def refused(*arguments: str) -> str:
    done = export(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("evalflows: ") and done.stderr.count("\n") == 1
    return done.stderr


def test_preferences_are_printed_and_counted(compared: Compared) -> None:
    compared.write()
    for reference in ("old and new", "cmp-1", "cmp"):
        done = export(reference)
        assert done.exit_code == 0, done.stderr
        row = json.loads(done.stdout)
        assert [*row][:3] == ["prompt", "chosen", "rejected"]
        assert (row["prompt"], row["chosen"], row["rejected"]) == ("q0?", "schön\nund gut", "new on q0")
        assert "schön" in done.stdout
        assert done.stderr == "1 of 3 pairs by preference; left out: 1 ties, 1 flipped\n"


def test_preferences_are_examples_for_a_prompt(compared: Compared) -> None:
    compared.judge("q2", "right", "right", metric="tone")
    compared.judge("q1", "left", "left", metric="tone")
    compared.write()
    shown = export("cmp-1", "--metric", "preference", "--few-shot", "3")
    assert shown.stdout == (
        "Examples, each with a better and a worse answer:\n\n## Example 1\n\nQuestion:\nq0?\n\n"
        "Better answer:\nschön\nund gut\n\nWorse answer:\nnew on q0\n"
    )
    assert shown.stderr.endswith("1 flipped; they are in the prompt, so they cannot test it: q0\n")
    one, two = (export("cmp-1", "--metric", "tone", "--few-shot", str(n)) for n in (1, 2))
    assert two.stdout.startswith(one.stdout) and two.stdout.count("## Example") == 2
    found = preferences_of(Store(), "cmp-1", "tone")
    (first,) = found.few_shot(1)[1]
    assert replace(found, final=frozenset([first])).few_shot(2)[1] == [({"q1", "q2"} - {first}).pop()]
    with pytest.raises(InputError, match="got no preference that can be an example"):
        replace(found, final=frozenset(["q1", "q2"])).few_shot(2)


def test_preferences_are_written_to_a_file(compared: Compared, tmp_path: Path) -> None:
    compared.write()
    Path("train.jsonl").write_text("of old\n" * 100)
    done = export("cmp-1", "--output", "train.jsonl")
    assert (done.exit_code, done.stdout) == (0, "")
    assert Path("train.jsonl").read_text(encoding="utf-8") == export("cmp-1").stdout
    assert done.stderr == "1 of 3 pairs by preference; left out: 1 ties, 1 flipped\n"
    assert [path.name for path in tmp_path.iterdir()] == ["train.jsonl"]


def test_bad_input_is_one_line(compared: Compared, tmp_path: Path) -> None:
    compared.judge("q0", "right", "right", metric="tone")
    compared.write()
    Path("file").touch()
    Path("folder").mkdir()
    tone = ("cmp-1", "--metric", "tone")
    assert json.loads(export(*tone).stdout)["chosen"] == "new on q0"
    for arguments, message in (
        (("nonsense",), "comparison 'nonsense': not in"),
        (("cmp-1",), "comparison 'cmp-1': got 2 metrics, wanted one of: preference, tone"),
        (("cmp-1", "--metric", "x"), "comparison 'cmp-1': got the metric 'x', wanted one of: preference, tone"),
        ((*tone, "--output", "nowhere/x.jsonl"), "nowhere/x.jsonl: cannot be written: No such file"),
        ((*tone, "--output", "file/x.jsonl"), "file/x.jsonl: cannot be written: Not a directory"),
        ((*tone, "--output", "folder"), "folder: cannot be written: Is a directory"),
        ((*tone, "--output", ""), ".: cannot be written: "),
    ):
        assert message in refused(*arguments)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}
    assert [*Path("folder").iterdir()] == []


def test_a_file_is_left_as_it_was_where_the_new_one_cannot_be_written_whole(
    compared: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared.write()
    Path("train.jsonl").write_text("as before\n")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    assert "train.jsonl: cannot be written: No space left on device" in refused("cmp-1", "--output", "train.jsonl")
    assert Path("train.jsonl").read_text() == "as before\n"
    assert [path.name for path in tmp_path.iterdir()] == ["train.jsonl"]
