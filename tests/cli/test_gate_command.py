"""evalflows gate, baseline and explain: what they print, and how they end."""

import re
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


def test_pass_ends_with_0(tmp_path: Path) -> None:
    done = gate(tmp_path, [GUARD], old=OLD, new=OLD)
    assert done.exit_code == 0, done.output
    assert "gate release: app-new against app-old: PASS\n" in done.stdout
    assert "  met    non inferiority     exact_match is not worse by more than 0.05: +0.000 [" in done.stdout
    assert all(line.startswith("evalflows: ") for line in done.stderr.splitlines())


def test_fail_ends_with_1_and_one_line_that_says_which_metric_and_by_how_much(tmp_path: Path) -> None:
    done = gate(tmp_path, [GUARD], old=OLD, new=fallen(OLD, 0.2))
    assert done.exit_code == 1
    assert "gate release: app-new against app-old: FAIL\n" in done.stdout
    line = r"evalflows: gate release: app-new against app-old: FAIL: exact_match is worse by more than 0\.05: "
    assert re.fullmatch(line + r"-0\.200 \[-0\.\d+, -0\.\d+\], 200 pairs", done.stderr.splitlines()[-1])


def test_not_enough_evidence_ends_with_3(tmp_path: Path) -> None:
    done = gate(tmp_path, [GUARD], "--set", "dataset.sample=10", old=OLD, new=OLD)
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1] == "evalflows: gate release: app-new against app-old: NOT ENOUGH EVIDENCE"
    assert "exact_match: 10 pairs, wanted at least 20 to decide" in done.stdout


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


def test_a_plain_run_decides_too_and_ends_with_0(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(gated(tmp_path, [GUARD], old=OLD, new=fallen(OLD, 0.2))))
    done = asked("run", str(spec))
    assert done.exit_code == 0
    assert "gate release: app-new against app-old: FAIL" in done.stdout
    assert "gate release: app-new against app-old: FAIL" in asked("show", "app").stdout


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
