"""`evalflows evaluate-traces`: what it prints, and its exit codes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from made_traces import BEGAN, traces, write

from evalflows.cli.evaluate_traces import evaluate_traces
from evalflows.store.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

SPEC = """
name: production
evaluators:
  - {use: length_between, name: answered, args: {least: 1, most: 4000}}
  - {use: json_valid}
settle_s: 0
composites: [{name: both, weights: {answered: 1, json_valid: 1}}]
"""


def command(folder: Path, *arguments: str) -> Result:
    path = folder / "watch.yaml"
    if not path.exists():
        path.write_text(SPEC)
    return CliRunner().invoke(evaluate_traces, [str(path), *arguments])


@pytest.mark.slow
def test_it_says_what_it_judged(store: Store, tmp_path: Path) -> None:
    write(store, traces(3) + traces(1, first=3, output=None))
    done = command(tmp_path, "--set", "max_items=3")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("production (batch-") and lines[0].endswith("): 3 new items, 6 scores")
    assert lines[1:2] == ["3 composite scores"]
    assert lines[2] == "stopped before the last item; the next start judges the rest"
    resumed = command(tmp_path, "--resume", lines[0].partition("(")[2].partition(")")[0])
    assert (resumed.exit_code, len(resumed.stderr.splitlines())) == (2, 1) and "not a backfill" in resumed.stderr
    done = command(tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0].endswith("): 1 new items, 0 scores")
    assert lines[1].startswith("1 items could not be judged by any evaluator: evalflows sql ")
    assert command(tmp_path).stdout.splitlines()[0].endswith("): 0 new items, 0 scores")


@pytest.mark.slow
def test_a_backfill_judges_what_began_then_and_the_rest_as_it_says(store: Store, tmp_path: Path) -> None:
    write(store, traces(5, apart_s=3600.0))
    since, until = (f"{BEGAN + timedelta(hours=hours):%Y-%m-%dT%H:%M}" for hours in (1, 3))
    *_, stopped, _ = command(tmp_path, "--from", since, "--to", until, "--set", "max_items=2").stdout.splitlines()
    option, batch = stopped.removeprefix("stopped before the last item; ").split()[:2]
    assert stopped.endswith(" judges the rest") and option == "--resume"
    assert command(tmp_path, option, batch).stdout.splitlines()[0].endswith("): 1 items, 2 scores")
    assert command(tmp_path, "--backfill").stdout.splitlines()[0].endswith("): 5 items, 4 scores")


@pytest.mark.slow
def test_it_says_which_incidents_began_and_ended_and_what_is_next(store: Store, tmp_path: Path) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    def write_day(ago: int, output: str) -> None:
        write(store, traces(40, first=100 * ago, output=output, began=today - timedelta(days=ago)))

    (tmp_path / "watch.yaml").write_text(f"{SPEC}watch: [{{threshold: json_valid, minimum: 0.9}}]\n")
    write_day(4, "{}")
    assert command(tmp_path).stdout.splitlines()[-1] == "next: evalflows windows production"
    write_day(3, "no JSON")
    *_, alarm, following = command(tmp_path).stdout.splitlines()
    assert alarm.startswith("alarm: json_valid 0.000 [0.000, 0.088] on ") and "below 0.9" in alarm
    assert following == "next: evalflows alerts ls"
    write_day(2, "{}")
    *_, ended, following = command(tmp_path).stdout.splitlines()
    assert ended.startswith("ended: json_valid recovered: 1.000 ")
    assert following == "next: evalflows windows production"


def test_what_cannot_work_is_one_line(store: Store, tmp_path: Path) -> None:
    write(store, traces(1))
    for arguments, message in (
        (["--from", "tomorrow"], "--from: got 'tomorrow', wanted a date or time such as 2026-11-01T08:00"),
        (["--from", "2026-03-02", "--to", "2026-03-01"], "backfill: got from 2026-03-02 00:00 to 2026-03-01 00:00"),
        (["--resume", "batch-x"], "resume: got 'batch-x', wanted a batch that stopped before its last item"),
        (["--set", "filter=colour = 1"], "filter: "),
        (["--set", "nothing=1"], "nothing: no such field"),
    ):
        done = command(tmp_path, *arguments)
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert message in done.stderr
