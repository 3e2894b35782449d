"""evalflows gate, baseline and explain: what they print, and how they end."""

import re
import shlex
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from click.testing import CliRunner, Result
from gated import drawn, fallen, gated

from evalflows.cli.main import cli
from evalflows.store import connect

pytestmark = pytest.mark.usefixtures("prefect_api")

GUARD = {"name": "release", "non_inferiority": {"exact_match": 0.05}}
OLD = drawn(200, 0.8)


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def gate(folder: Path, gates: list[dict[str, Any]], *arguments: str, **right: Any) -> Result:
    spec = folder / "spec.yaml"
    spec.write_text(yaml.safe_dump(gated(folder, gates, **right)))
    return asked("gate", str(spec), *arguments)


def rows(query: str) -> list[tuple[Any, ...]]:
    with connect() as catalog:
        return catalog.execute(query).fetchall()


@pytest.mark.slow
def test_pass_ends_with_0(tmp_path: Path) -> None:
    done = gate(tmp_path, [GUARD], old=OLD, new=OLD)
    assert done.exit_code == 0, done.output
    assert "gate release: app-new against app-old: PASS\n" in done.stdout
    assert "  met    non inferiority     exact_match is not worse by more than 0.05: +0.000 [" in done.stdout
    assert all(line.startswith("evalflows: ") for line in done.stderr.splitlines())


@pytest.mark.slow
def test_fail_ends_with_1_and_one_line_that_says_which_metric_and_by_how_much(tmp_path: Path) -> None:
    done = gate(tmp_path, [GUARD], old=OLD, new=fallen(OLD, 0.2))
    assert done.exit_code == 1
    assert "gate release: app-new against app-old: FAIL\n" in done.stdout
    line = r"evalflows: gate release: app-new against app-old: FAIL: exact_match is worse by more than 0\.05: "
    assert re.fullmatch(line + r"-0\.200 \[-0\.\d+, -0\.\d+\], 200 pairs", done.stderr.splitlines()[-1])


@pytest.mark.slow
def test_not_enough_evidence_ends_with_3(tmp_path: Path) -> None:
    done = gate(tmp_path, [GUARD], "--set", "dataset.sample=10", old=OLD, new=OLD)
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1] == "evalflows: gate release: app-new against app-old: NOT ENOUGH EVIDENCE"
    assert "exact_match: 10 pairs, wanted at least 20 to decide" in done.stdout


@pytest.mark.slow
def test_where_one_gate_fails_and_another_is_open_it_has_failed(tmp_path: Path) -> None:
    goal = {"name": "superiority", "superiority": {"exact_match": 0.01}}
    done = gate(tmp_path, [{"name": "threshold", "thresholds": {"exact_match": 0.9}}, goal], old=OLD, new=OLD)
    assert done.exit_code == 1
    assert [line for line in done.stdout.splitlines() if line.startswith("gate ")] == [
        "gate threshold: app-new against app-old: FAIL",
        "gate superiority: app-new against app-old: NOT ENOUGH EVIDENCE",
    ]


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ([], "spec 'app': got no gates"),
        ([{"name": "empty"}], "gates.0: gate 'empty': got no rule"),
        ([{"non_inferiority": {"exact_match": 0}}], "non_inferiority: exact_match: got 0, wanted a margin above 0"),
        ([{"non_inferiority": {"other": 0.1}}], "gate 'release': no evaluator gives 'other'"),
        ([GUARD | {"baseline": "nobody"}], "gate 'release': no experiment is approved as baseline 'nobody'"),
        ([GUARD | {"candidate": "nobody"}], "candidate: got 'nobody', wanted one of old, new"),
        ([GUARD, GUARD], "gates: two are called 'release'"),
        ([GUARD, GUARD | {"name": "b", "batch": 20}], "gates: batch: got several"),
    ],
)
def test_a_mistake_ends_with_2_and_nothing_is_begun(tmp_path: Path, gates: list[dict[str, Any]], message: str) -> None:
    done = gate(tmp_path, gates, old=OLD[:20], new=OLD[:20])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert rows("select * from experiments") == []


@pytest.mark.slow
def test_a_plain_run_decides_too_and_ends_with_0(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(gated(tmp_path, [GUARD], old=OLD, new=fallen(OLD, 0.2))))
    done = asked("run", str(spec))
    assert done.exit_code == 0
    assert "gate release: app-new against app-old: FAIL" in done.stdout
    assert "gate release: app-new against app-old: FAIL" in asked("show", "app").stdout


@pytest.mark.slow
def test_baselines_are_approved_and_listed(tmp_path: Path) -> None:
    assert "no baseline is approved yet" in asked("baseline", "ls").stdout
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(gated(tmp_path, [GUARD], old=OLD)))
    assert asked("run", str(spec)).exit_code == 0
    assert gate(tmp_path, [GUARD], old=OLD).exit_code == 2
    done = asked("baseline", "approve", "app", "--reason", "as agreed", "--by", "Ada")
    assert (done.exit_code, done.stdout.startswith("baseline app: app (exp-")) == (0, True)
    assert done.stdout.endswith("approved by Ada\n")
    listed = asked("baseline", "ls").stdout
    assert "Ada" in listed and "as agreed" in listed
    assert gate(tmp_path, [GUARD], new=OLD).exit_code == 0
    assert asked("baseline", "approve", "nobody").exit_code == 2


@pytest.mark.slow
def test_explained_it_can_be_made_again(tmp_path: Path) -> None:
    gate(tmp_path, [GUARD], old=OLD, new=fallen(OLD, 0.2))
    done = asked("explain", "release", "--again")
    assert done.exit_code == 0, done.stderr
    assert "Decided again from the store: the same figures, the same decision" in done.stdout
    (query,) = [line for line in done.stdout.splitlines() if line.startswith("select example_id")]
    pairs = rows(query)
    assert len(pairs) == 200
    mean = sum(pair[3] for pair in pairs) / 200
    assert [(round(mean, 12),)] == rows("select round(difference, 12) from verdicts where decision_id is not null")
    for line in done.stdout.splitlines():
        if line.endswith(".parquet"):
            assert Path(line).is_file()
    assert rows("from " + re.search(r"gate_rules where decision_id = '.*'", done.stdout)[0])  # type: ignore[index]
    assert asked("explain", "nothing").exit_code == 2


@pytest.mark.slow
def test_made_again_from_other_scores_it_is_another_decision(tmp_path: Path) -> None:
    from dataclasses import replace

    from evalflows.store.parquet import Store

    gate(tmp_path, [GUARD], old=OLD, new=fallen(OLD, 0.2))
    store, (identity,) = Store(), rows("select candidate_experiment_id from decisions")[0]
    changed = [replace(score, value=1.0) for score in store.read("scores", identity)]
    store.publish("scores", identity, changed)
    done = asked("explain", "release", "--again")
    assert done.exit_code == 0
    assert "Decided again from the store: a different decision now, PASS" in done.stdout


@pytest.mark.slow
def test_the_decision_is_an_event_and_a_page(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    gate(tmp_path, [GUARD], old=OLD, new=fallen(OLD, 0.2))
    ((identity,),) = rows("select decision_id from decisions")
    url = prefect_environment["PREFECT_API_URL"]

    def events() -> list[dict[str, Any]]:
        wanted = {"filter": {"event": {"name": ["evalflows.gate.decided"]}}, "limit": 50}
        found = httpx.post(f"{url}/events/filter", json=wanted).json()["events"]
        return [one for one in found if one["payload"]["decision_id"] == identity]

    import time

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
    page = httpx.post(
        f"{url}/artifacts/filter", json={"artifacts": {"key": {"any_": ["decision"]}}, "sort": "CREATED_DESC"}
    )
    assert "## FAIL\n\ngate release: app-new against app-old" in page.json()[0]["data"].replace("\\", "")
    failed = httpx.post(
        f"{url}/flow_runs/filter",
        json={"flows": {"name": {"any_": ["gate_release"]}}, "sort": "START_TIME_DESC", "limit": 1},
    ).json()[0]
    assert failed["state"]["type"] == "FAILED"
    assert "exact_match is worse by more than 0.05: -0.200" in failed["state"]["message"]


def after_gate(folder: Path, gates: list[dict[str, Any]], width: int, **right: Any) -> list[str]:
    """The lines that a gate prints in so many columns, without what chance and time there is in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        printed = gate(folder, gates, **right).stdout
    printed = re.sub(r"(exp|dec)-\w+", r"\1-ID", printed.replace(str(folder), "/here"))
    return [line.rstrip() for line in re.sub(r"\d\d:\d\d UTC", "14:02 UTC", printed).splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
def test_the_five_worst_examples_follow_and_the_command_for_all_of_them(tmp_path: Path, width: int) -> None:
    lines = after_gate(tmp_path, [GUARD], width, old=OLD, new=fallen(OLD, 0.2))
    assert lines[:3] == [
        "metric       system  mean                  difference               verdict",
        "exact_match  old     0.800 [0.739, 0.850]",
        "exact_match  new     0.600 [0.531, 0.665]  -0.200 [-0.261, -0.141]  worse",
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
    assert lines[-1] == "next: evalflows explain dec-ID"
    assert all(len(line) <= width for line in lines if line != command)


@pytest.mark.slow
def test_the_command_for_all_of_them_works_as_printed(tmp_path: Path) -> None:
    done = gate(tmp_path, [GUARD], old=OLD, new=fallen(OLD, 0.2))
    (command,) = [line for line in done.stdout.splitlines() if line.startswith("all of them: ")]
    program, *arguments = shlex.split(command.removeprefix("all of them: "))
    listed = asked(*arguments)
    assert (program, listed.exit_code) == ("evalflows", 0), listed.stderr
    start = done.stdout.index("examples that got worse by exact_match: new against old")
    assert listed.stdout.startswith(done.stdout[start : done.stdout.index("all of them: ")])
    assert listed.stdout.count(": was 1, now 0  Question ") == 40


@pytest.mark.slow
def test_approving_an_experiment_that_a_gate_failed_says_so(tmp_path: Path) -> None:
    asked("run", str(_spec(tmp_path, [], first=OLD)))
    asked("baseline", "approve", "app")
    gate(tmp_path, [GUARD], new=fallen(OLD, 0.2))
    ((candidate, decision),) = rows("select candidate_experiment_id, decision_id from decisions")
    done = asked("baseline", "approve", candidate, "--name", "other")
    assert (done.exit_code, f"said FAIL of this experiment: evalflows explain {decision}" in done.stderr) == (0, True)


@pytest.mark.slow
def test_against_another_baseline_than_the_run_s_the_command_names_it(tmp_path: Path) -> None:
    asked("run", str(_spec(tmp_path, [], first=OLD)))
    asked("baseline", "approve", "app")
    done = gate(tmp_path, [GUARD], new=fallen(OLD, 0.2))
    (command,) = [line for line in done.stdout.splitlines() if line.startswith("all of them: ")]
    ((candidate, baseline),) = rows("select candidate_experiment_id, baseline_experiment_id from decisions")
    assert command == f"all of them: evalflows show {candidate} --worst exact_match --against {baseline}"
    listed = asked(*shlex.split(command.removeprefix("all of them: "))[1:])
    assert listed.stdout.splitlines()[0] == "examples that got worse by exact_match: new against first"
    assert listed.stdout.count(": was 1, now 0  Question ") == 40
    unknown = asked("show", candidate, "--worst", "tone")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("evalflows: metric: got 'tone', wanted one of exact_match")
    assert asked("show", candidate, "--against", baseline).exit_code == 2


@pytest.mark.slow
def test_of_one_experiment_the_lowest_scores_are_shown_and_that_command_works(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(gated(tmp_path, [], {"evaluators": ["exact_match", "contains"]}, one=OLD)))
    lines = asked("run", str(spec)).stdout.splitlines()
    assert len([line for line in lines if re.match(r"  q\d+: 0  Question", line)]) == 5
    assert (
        "examples that are lowest by contains: one" in lines and "examples that are lowest by exact_match: one" in lines
    )
    (command,) = [line for line in lines if line.startswith("all of them: ")]
    (identity,) = rows("select experiment_id from experiments")[0]
    assert command == f"all of them: evalflows show {identity} --worst contains --worst exact_match"
    listed = asked(*shlex.split(command.removeprefix("all of them: "))[1:]).stdout
    assert len(re.findall(r"^  q\d+: [01]  Question", listed, flags=re.M)) == 2 * 200
    assert lines[-1] == f"next: evalflows baseline approve {identity}"


@pytest.mark.slow
def test_where_nothing_got_worse_there_is_no_heading_and_a_pass_can_be_approved(tmp_path: Path) -> None:
    done = gate(tmp_path, [GUARD], old=OLD, new=OLD)
    assert "examples that got worse" not in done.stdout and "all of them" not in done.stdout
    ((candidate,),) = rows("select candidate_experiment_id from decisions")
    command = done.stdout.splitlines()[-1].removeprefix("next: ")
    assert command == f"evalflows baseline approve {candidate}"
    assert asked(*command.split()[1:]).exit_code == 0
    shown = asked("show", "app").stdout.splitlines()[-1]
    assert shown == f"next: evalflows show {candidate} --wide", "it is approved already"


@pytest.mark.slow
def test_not_enough_evidence_leads_to_a_plan(tmp_path: Path) -> None:
    done = gate(tmp_path, [GUARD], "--set", "dataset.sample=10", old=OLD, new=OLD)
    command = done.stdout.splitlines()[-1].removeprefix("next: ")
    assert command == f"evalflows plan {tmp_path / 'spec.yaml'}  # how many examples would decide"
    planned = asked(*shlex.split(command, comments=True)[1:])
    assert planned.exit_code == 0, planned.stderr
    explained = asked("explain", "release").stdout.splitlines()[-1]
    assert explained == "next: evalflows plan SPEC  # how many examples would decide"


@pytest.mark.slow
def test_candidate_and_baseline_of_one_name_are_told_apart(tmp_path: Path) -> None:
    asked("run", str(_spec(tmp_path, [], new=OLD)))
    asked("baseline", "approve", "app")
    asked("run", str(_spec(tmp_path, [], other=OLD)))
    lines = after_gate(tmp_path, [GUARD], 120, new=fallen(OLD, 0.2))
    approved, candidate = "app (approved today 14:02 UTC)", "app (today 14:02 UTC)"
    assert f"gate release: {candidate} against {approved}: FAIL" in lines
    systems = {" ".join(line.split()[:6]) for line in lines if line.startswith("exact_match ")}
    assert systems == {"exact_match new (approved today 14:02 UTC)", "exact_match new (today 14:02 UTC) 0.600"}
    (row,) = [line for line in lines if line.startswith("exact_match  new (today")]
    assert row.endswith("-0.200 [-0.261, -0.141]  worse")
    assert not any("other" in line for line in lines), "nothing but the candidate and its baseline"


def _spec(folder: Path, gates: list[dict[str, Any]], **right: Any) -> Path:
    spec = folder / "spec.yaml"
    spec.write_text(yaml.safe_dump(gated(folder, gates, **right)))
    return spec
