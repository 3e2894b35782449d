"""evalflows retain says what is too old, and erases it with --yes."""

import json
from pathlib import Path

import personal
from click.testing import CliRunner
from personal import SECRET, files_with

from evalflows.cli.main import cli
from evalflows.store.store import Store

DEFAULT = Path(__file__).parents[2] / "data" / "retention" / "default.yaml"


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["retain", *arguments])
    return done.exit_code, done.stdout, done.stderr


def rules(folder: Path, text: str) -> str:
    path = folder / "rules.yaml"
    path.write_text(text)
    return str(path)


def test_what_is_too_old_is_said_and_erased_with_yes(store: Store, store_root: Path, tmp_path: Path) -> None:
    personal.fill_production(store)
    path = rules(tmp_path, "trace_texts_days: 1\n")
    code, out, _ = run(path)
    assert code == 0 and files_with(SECRET, store_root)
    assert out.splitlines()[-1] == "nothing is erased or removed yet: --yes does it for good"
    code, out, err = run(path, "--yes")
    assert [line.split()[-2:] for line in out.splitlines()[-3:]] == [
        ["calls", "2"],
        ["judgements", "2"],
        ["observations", "4"],
    ]
    assert (code, files_with(SECRET, store_root)) == (0, []) and err.startswith("copies elsewhere stay")
    assert run(path, "--yes") == (0, "nothing is too old\n", "")


def test_removed_experiments_are_named(store: Store, tmp_path: Path) -> None:
    personal.fill_experiment(store, "exp-1", "snap-1", 0)
    store.filesystem.rm(f"{store.layout.root}/labels/sealed/batch_id=labels-exp-1", recursive=True)
    path = rules(tmp_path, "experiments_days: 1\nkeep_last: 0\n")
    code, out, _ = run(path, "--format", "json")
    ((one),) = json.loads(out)
    assert (code, one["experiments"], one["rows"]["outputs"]) == (0, ["exp-1"], 2)
    code, out, _ = run(path, "--yes")
    assert code == 0 and out.splitlines()[-1] == "removed: exp-1"
    assert Store().query("select count(*) from source.calls") == [(0,)]


def test_bad_rules_are_one_line(store: Store, tmp_path: Path) -> None:
    for text, message in (
        ("keep_last: 1", "wanted trace_texts_days"),
        ("days: 1", "days"),
        ("experiments_days: 0", "1"),
    ):
        code, out, err = run(rules(tmp_path, text), "--yes")
        assert (code, out, err.count("\n")) == (2, "", 1) and message in err
    assert run(str(DEFAULT)) == (0, "nothing is too old\n", "")
