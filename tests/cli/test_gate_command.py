"""evalflows gate, baseline and explain: what they print, and how they end."""

import re
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from click.testing import CliRunner, Result
from gated import drawn, fallen, gated
from prefect.context import SettingsContext, get_settings_context

from evalflows.cli.main import cli
from evalflows.store import connect
from evalflows.store.store import Store

GUARD = {"name": "release", "non_inferiority": {"exact_match": 0.05}}
OLD = drawn(200, 0.8)
NEW = fallen(OLD, 0.2)


class Folder:
    """A user's folder, whose store is of its own."""

    def __init__(self, place: Path, settings: Any) -> None:
        self.place, self.settings, self.spec = place, settings, place / "spec.yaml"

    def __call__(self, *arguments: str) -> Result:
        context = SettingsContext(profile=get_settings_context().profile, settings=self.settings)
        with pytest.MonkeyPatch.context() as patch, context:
            patch.setenv("EVALFLOWS_STORE", str(self.place / "store"))
            patch.setenv("EVALFLOWS_SPOOL", str(self.place / "spool"))
            patch.setenv("COLUMNS", "80")
            return CliRunner().invoke(cli, list(arguments))

    def write(self, gates: list[dict[str, Any]], changes: dict[str, Any] | None = None, **right: Any) -> str:
        self.spec.write_text(yaml.safe_dump(gated(self.place, gates, changes, **right)))
        return str(self.spec)

    def gate(self, gates: list[dict[str, Any]], *arguments: str, **right: Any) -> Result:
        return self("gate", self.write(gates, **right), *arguments)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with connect(self.place / "store") as catalog:
            return catalog.execute(query).fetchall()


@pytest.fixture(scope="module")
def new_folder(
    tmp_path_factory: pytest.TempPathFactory, prefect_environment: dict[str, str], prefect_settings: Any
) -> Callable[[], Folder]:
    return lambda: Folder(tmp_path_factory.mktemp("folder"), prefect_settings)


@pytest.fixture(scope="module")
def failed(new_folder: Callable[[], Folder]) -> tuple[Folder, Result]:
    """A folder whose gate failed, and what the command printed."""
    folder = new_folder()
    return folder, folder.gate([GUARD], old=OLD, new=NEW)


@pytest.mark.slow
def test_pass_ends_with_0_and_can_be_approved(new_folder: Callable[[], Folder]) -> None:
    folder = new_folder()
    done = folder.gate([GUARD], old=OLD, new=OLD)
    assert done.exit_code == 0, done.output
    assert "PASS  gate release: app-new against app-old\n" in done.stdout
    said = " ".join(done.stdout.split())
    assert "met exact_match is not worse by more than 0.05: +0.000 [" in said
    assert all(line.startswith("evalflows: ") for line in done.stderr.splitlines())
    assert "examples that got worse" not in done.stdout and "all of them" not in done.stdout
    ((candidate, baseline),) = folder.rows("select candidate_experiment_id, baseline_experiment_id from decisions")
    command = done.stdout.splitlines()[-1].removeprefix("next: ")
    assert command == f"evalflows diff {baseline} {candidate}", "its baseline is a target, whatever is approved"
    assert folder("baseline", "approve", candidate).exit_code == 0
    shown = folder("show", "app").stdout.splitlines()[-1]
    assert shown == f"next: evalflows show {candidate} --all", "it is approved already"


@pytest.mark.slow
def test_fail_ends_with_1_and_says_which_metric_by_how_much_and_which_examples(failed: tuple[Folder, Result]) -> None:
    folder, done = failed
    assert done.exit_code == 1
    assert done.stdout.startswith("FAIL  gate release: app-new against app-old\n")
    line = r"evalflows: gate release: app-new against app-old: FAIL: exact_match is worse by more than 0\.05: "
    assert re.fullmatch(line + r"-0\.200 \[-0\.\d+, -0\.\d+\], 200 pairs", done.stderr.splitlines()[-1])
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert {
        "examples that got worse by exact_match: new against old, 3 of 40",
        "  q0004  1 → 0  Question 4?",
        '    got "no", wanted "yes"',
    } <= {*lines}
    assert any(line.startswith("exact_match ") and line.endswith("-0.200 [-0.261, -0.141]  worse") for line in lines)
    more = next(line for line in lines if line.startswith("not shown: 37 examples: "))
    assert len(lines) <= 24 and all(len(line) <= 80 for line in lines if line != more)
    ((decision,),) = folder.rows("select decision_id from decisions")
    assert lines[-1] == f"next: evalflows explain {decision}"
    everything = folder(*more.removeprefix("not shown: 37 examples: evalflows ").split()).stdout
    lines = [line.rstrip() for line in everything.splitlines()]
    assert [" ".join(line.split()) for line in lines[1:3]] == [
        "exact_match old 0.800 [0.739, 0.850]",
        "exact_match new 0.600 [0.531, 0.665] -0.200 [-0.261, -0.141] worse",
    ]
    start = lines.index("examples that got worse by exact_match: new against old")
    assert lines[start + 1 : start + 5] == [
        "  q0004: was 1, now 0  Question 4?",
        "      answer: no",
        "      baseline: yes",
        '      comment: got "no", wanted "yes"',
    ]
    command = next(line for line in lines if line.startswith("all of them: "))
    assert lines.index(command) == start + 1 + 5 * 4
    program, *arguments = shlex.split(command.removeprefix("all of them: "))
    listed = folder(*arguments)
    assert (program, listed.exit_code) == ("evalflows", 0), listed.stderr
    text = everything[everything.index("examples that got worse") : everything.index("all of them: ")]
    assert listed.stdout.startswith(text)
    assert listed.stdout.count(": was 1, now 0  Question ") == 40


@pytest.mark.slow
def test_the_decision_is_an_event_and_a_page(
    failed: tuple[Folder, Result], prefect_environment: dict[str, str]
) -> None:
    ((identity,),) = failed[0].rows("select decision_id from decisions")
    url = prefect_environment["PREFECT_API_URL"]

    def events() -> list[dict[str, Any]]:
        wanted = {"filter": {"event": {"name": ["evalflows.gate.decided"]}}, "limit": 50}
        found = httpx.post(f"{url}/events/filter", json=wanted).json()["events"]
        return [one for one in found if one["payload"]["decision_id"] == identity]

    deadline = time.monotonic() + 30
    while not events() and time.monotonic() < deadline:
        time.sleep(0.2)
    (event,) = events()
    assert event["resource"]["prefect.resource.id"] == "evalflows.gate.release"
    assert {name: event["payload"][name] for name in ("conclusion", "candidate", "baseline", "broken", "open")} == {
        "conclusion": "FAIL",
        "candidate": "app-new",
        "baseline": "app-old",
        "broken": ["exact_match"],
        "open": [],
    }
    pages = httpx.post(f"{url}/artifacts/filter", json={"artifacts": {"key": {"any_": ["decision"]}}}).json()
    said = "## FAIL\n\ngate release: app-new against app-old"
    assert any(said in page["data"].replace("\\", "") for page in pages)
    runs = httpx.post(f"{url}/flow_runs/filter", json={"flows": {"name": {"any_": ["gate_release"]}}}).json()
    messages = [run["state"]["message"] for run in runs if run["state"]["type"] == "FAILED"]
    assert any("exact_match is worse by more than 0.05: -0.200" in message for message in messages)


@pytest.mark.slow
def test_explained_it_can_be_made_again_and_from_other_scores_is_another(failed: tuple[Folder, Result]) -> None:
    folder, _ = failed
    done = folder("explain", "release", "--again", "--all")
    assert done.exit_code == 0, done.stderr
    assert "the same figures, the same decision" in done.stdout
    (query,) = [line for line in done.stdout.splitlines() if line.startswith("select example_id")]
    pairs = folder.rows(query)
    assert len(pairs) == 200
    mean = sum(pair[3] for pair in pairs) / 200
    verdict = "select round(difference, 12) from verdicts where decision_id is not null"
    assert [(round(mean, 12),)] == folder.rows(verdict)
    assert all(Path(line).is_file() for line in done.stdout.splitlines() if line.endswith(".parquet"))
    assert folder.rows("from " + re.search(r"gate_rules where decision_id = '.*'", done.stdout)[0])  # type: ignore[index]
    assert folder("explain", "nothing").exit_code == 2
    store = Store(folder.place / "store")
    ((identity,),) = folder.rows("select candidate_experiment_id from decisions")
    store.publish("judgements", identity, [replace(score, value=1.0) for score in store.read("judgements", identity)])
    again = folder("explain", "release", "--again")
    assert again.exit_code == 1 and "a different decision now, PASS" in again.stdout


@pytest.mark.slow
def test_not_enough_evidence_ends_with_3_and_leads_to_a_plan(new_folder: Callable[[], Folder]) -> None:
    folder = new_folder()
    done = folder.gate([GUARD], old=OLD[:10], new=OLD[:10])
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1] == "evalflows: gate release: app-new against app-old: NOT ENOUGH EVIDENCE"
    assert "10 pairs; wanted at least 20 to decide" in " ".join(done.stdout.split())
    command = done.stdout.splitlines()[-1].removeprefix("next: ")
    assert command.startswith(f"evalflows plan {folder.spec}  # ")
    planned = folder(*shlex.split(command, comments=True)[1:])
    assert planned.exit_code == 0, planned.stderr
    assert folder("explain", "release").stdout.splitlines()[-1].startswith("next: evalflows plan exp-")


@pytest.mark.slow
def test_where_one_gate_fails_and_another_is_open_it_has_failed_and_a_plain_run_ends_with_0(
    new_folder: Callable[[], Folder],
) -> None:
    folder, right = new_folder(), OLD[:40]
    goal = {"name": "superiority", "superiority": {"exact_match": 0.01}}
    threshold = {"name": "threshold", "thresholds": {"exact_match": 0.95}}
    lines = ["FAIL  gate threshold: app-new against app-old"]
    lines += ["NOT ENOUGH EVIDENCE  gate superiority: app-new against app-old"]
    for command, code in (("gate", 1), ("run", 0)):
        done = folder(command, folder.write([threshold, goal], old=right, new=right))
        assert done.exit_code == code, done.output
        assert [line for line in done.stdout.splitlines() if "  gate " in line] == lines
    assert lines[0] in folder("show", "app").stdout


def test_a_mistake_ends_with_2_and_nothing_is_begun(new_folder: Callable[[], Folder]) -> None:
    folder = new_folder()
    for gates, message in (
        ([], "spec 'app': got no gates"),
        ([{"name": "empty"}], "gates.0: gate 'empty': got no rule"),
        ([{"non_inferiority": {"exact_match": 0}}], "non_inferiority: exact_match: got 0, wanted a margin above 0"),
        ([{"non_inferiority": {"other": 0.1}}], "gate 'release': no evaluator gives 'other'"),
        ([GUARD | {"baseline": "nobody"}], "gate 'release': no experiment is approved as baseline 'nobody'"),
        ([GUARD | {"candidate": "nobody"}], "candidate: got 'nobody', wanted one of old, new"),
        ([GUARD, GUARD], "gates: two are called 'release'"),
        ([GUARD, GUARD | {"name": "b", "batch": 20}], "gates: batch: got several"),
    ):
        done = folder.gate(gates, old=OLD[:20], new=OLD[:20])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1) and message in done.stderr, gates
    assert folder.rows("select * from experiments") == []


@pytest.mark.slow
def test_baselines_are_approved_listed_and_told_apart(new_folder: Callable[[], Folder]) -> None:
    folder = new_folder()
    assert "no baseline is approved yet" in folder("baseline", "ls").stdout
    assert folder("run", folder.write([], old=OLD)).exit_code == 0
    assert folder.gate([GUARD], old=OLD).exit_code == 2
    done = folder("baseline", "approve", "app", "--reason", "as agreed", "--by", "Ada")
    assert (done.exit_code, done.stdout.startswith("baseline app: app (exp-")) == (0, True)
    assert done.stdout.endswith("approved by Ada\n")
    listed = folder("baseline", "ls").stdout
    assert "Ada (pipe)" in listed and "as agreed" in listed
    assert folder("baseline", "approve", "nobody").exit_code == 2
    decided = folder.gate([GUARD], new=NEW)
    assert decided.exit_code == 1
    ((candidate, baseline, decision),) = folder.rows(
        "select candidate_experiment_id, baseline_experiment_id, decision_id from decisions"
    )
    printed = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC|…\w{6}", "NOW", " ".join(decided.stdout.split()))
    assert "FAIL gate release: app (NOW) against app (NOW) " in printed
    explained = " ".join(folder("explain", decision).stdout.split())
    assert re.search(r"approved as app by Ada, [^,]* UTC, by a program's command", explained), explained
    worst = folder("show", candidate, "--worst", "exact_match", "--against", baseline)
    assert worst.stdout.splitlines()[0] == "examples that got worse by exact_match: new against old"
    assert worst.stdout.count(": was 1, now 0  Question ") == 40
    unknown = folder("show", candidate, "--worst", "tone")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("evalflows: metric: got 'tone', wanted one of exact_match")
    assert folder("show", candidate, "--against", baseline).exit_code == 2
    approved = folder("baseline", "approve", candidate, "--name", "other", "--reason", "as agreed")
    assert (
        approved.exit_code == 0 and f"decided FAIL on this experiment: evalflows explain {decision}" in approved.stderr
    )


@pytest.mark.slow
def test_of_one_experiment_the_lowest_scores_are_shown_and_that_command_works(new_folder: Callable[[], Folder]) -> None:
    folder = new_folder()
    spec = folder.write([], {"evaluators": ["exact_match", "contains"]}, one=OLD[:40])
    assert "worst examples: one\n" in folder("run", spec).stdout
    ((identity,),) = folder.rows("select experiment_id from experiments")
    lines = folder("show", identity, "--all").stdout.splitlines()
    assert len([line for line in lines if re.match(r"  q\d+: 0  Question", line)]) == 5
    assert {f"worst examples by {metric}: one" for metric in ("contains", "exact_match")} <= {*lines}
    (command,) = [line for line in lines if line.startswith("all of them: ")]
    assert command == f"all of them: evalflows show {identity} --worst contains --worst exact_match"
    listed = folder(*shlex.split(command.removeprefix("all of them: "))[1:]).stdout
    assert len(re.findall(r"^  q\d+: [01]  Question", listed, flags=re.M)) == 2 * 40
    assert lines[-1] == f"next: evalflows baseline approve {identity}"
