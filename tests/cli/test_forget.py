"""evalflows forget says what it would erase, and erases it with --yes."""

import json
import os
from pathlib import Path

import personal
import pytest
from asking import body_of
from click.testing import CliRunner
from personal import REVIEWER, SECRET, USER, files_with

from evalflows.cli.main import cli
from evalflows.receiver import Entry, Journal
from evalflows.store.erasing import Subjects, keep_plan, new_plan
from evalflows.store.spool import RECEIVED, spool_folder
from evalflows.store.store import Store


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*arguments])
    return done.exit_code, done.stdout, done.stderr


def test_without_yes_it_only_says_what_it_would_erase(store: Store, store_root: Path) -> None:
    personal.fill(store)
    before = files_with(SECRET, store_root)
    code, out, err = run("forget", "--where", "customer_id=0")
    assert (code, files_with(SECRET, store_root)) == (0, before)
    assert [line.split() for line in out.splitlines()[1:-1]] == [
        ["calls", "7"],
        ["checks", "1"],
        ["comparison_sets", "1"],
        ["examples", "1"],
        ["experiments", "1"],
        ["judgements", "3"],
        ["labels", "2"],
        ["outputs", "2"],
    ]
    assert out.splitlines()[-1] == "nothing is erased yet: --yes erases these texts for good"
    assert err.startswith("copies elsewhere stay: exports")


@pytest.mark.slow
def test_with_yes_the_texts_are_erased_once_and_what_is_shown_of_them_says_so(store: Store, store_root: Path) -> None:
    personal.fill(store)
    code, out, _ = run("forget", "--example", "erna", "--dataset", "faq", "--yes")
    assert code == 0 and out.splitlines()[-1].startswith("erased, as erasure-")
    assert files_with(SECRET, store_root) == []
    code, out, err = run("forget", "--example", "erna", "--dataset", "faq", "--yes")
    first, second = out.splitlines()
    assert (code, first, err) == (0, "nothing to erase", "") and second.startswith("erased before, at 20")
    code, out, _ = run("sql", "select outputs from outputs where example_id = 'erna' and experiment_id = 'exp-1'")
    assert code == 0 and "(erased 20" in out
    code, out, _ = run("dataset", "show", "faq")
    assert code == 0 and "(erased 20" in out and SECRET not in out
    code, out, err = run("doctor")
    assert code == 0 and "1 of 2 examples erased, last on 20" in out, err


def test_json_is_one_document_and_what_a_dead_receiver_left_is_erased_too(store: Store) -> None:
    personal.fill_production(store)
    dead = Journal(spool_folder(store) / RECEIVED)
    dead.write([Entry("traces", "protobuf", body_of("late", attributes={"user.id": USER, "note": SECRET}))])
    dead.close()
    code, out, _ = run("forget", "--user", USER, "--yes", "--format", "json")
    ((one),) = json.loads(out)
    assert code == 0 and one["rows"] == {"calls": 1, "observations": 4, "judgements": 1}
    ((by, kind, rows),) = Store().query("select erased_by, kind, rows ->> 'judgements' from source.erasures")
    assert (kind, rows) == ("user", "1") and by


def test_what_names_nothing_is_an_error_and_a_name_that_nobody_has_erases_nothing(store: Store) -> None:
    personal.fill(store)
    for arguments, message in (
        ((), "got nothing to erase"),
        (("--dataset", "faq"), "got no example or field of metadata"),
        (("--where", "customer"), "--where: got 'customer', wanted FIELD=VALUE"),
        (("--where", '"=1'), "wanted FIELD=VALUE"),
    ):
        code, out, err = run("forget", *arguments, "--yes")
        assert (code, out, err.count("\n")) == (2, "", 1) and message in err
    odd = 'it\'s\n"me"'
    for name in ("--example", "--trace", "--session", "--user", "--reviewer"):
        assert run("forget", name, odd, "--yes")[:2] == (0, "nothing to erase\n")
    assert run("forget", "--where", f"note={odd}", "--yes")[:2] == (0, "nothing to erase\n")


def test_an_interrupted_erasure_is_finished(store: Store, store_root: Path) -> None:
    personal.fill(store)
    plan = new_plan(
        "reviewer", "", None, Subjects(keys={"written": {"labels": store.query("select label_id from source.labels")}})
    )
    keep_plan(store, plan)
    (path,) = (store_root / "erasing").iterdir()
    assert path.stat().st_mode & 0o077 == 0
    assert "`evalflows forget --finish`" in run("doctor")[1]
    assert run("forget", "--finish")[0] == 0
    assert files_with(REVIEWER, store_root) == [] and not path.exists()
    assert run("forget", "--finish")[:2] == (0, "nothing to erase\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_store_is_one_line(store: Store, store_root: Path) -> None:
    personal.fill(store)
    store_root.chmod(0o500)
    try:
        code, _, err = run("forget", "--example", "erna", "--yes")
    finally:
        store_root.chmod(0o700)
    assert code == 4 and err.count("\n") == 1
