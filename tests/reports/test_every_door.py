"""One fact at every door: what a run or a gate concluded, its figures, and the remarks on them."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner
from page_tables import shown_text, table_rows
from past import ABSTAINED, FAILED, START, Past, passes
from starlette.testclient import TestClient
from store_rows import make_row

import evalflows
from evalflows import ExperimentResult, decide_on
from evalflows import diff as diff_of
from evalflows.analysis.differences import MetricReader, estimate_rows, verdicts_on
from evalflows.cli.main import cli
from evalflows.dashboard.app import application
from evalflows.mcp_server import ReadingTools
from evalflows.reports.decisions import decisions_of
from evalflows.reports.experiment_report import experiments_report
from evalflows.reports.headlines import headline
from evalflows.reports.markdown_pages import reported, results_page
from evalflows.reports.picture import card_of
from evalflows.reports.results import SEVERITIES, conclusion_text, results_of
from evalflows.specs.gate import GateSpec
from evalflows.store.final_examples import Copy, keep_copies
from evalflows.store.kept_checks import QUARANTINE, keep_check
from evalflows.store.records import CheckRow, bundles_batch, controls_batch, drift_batch, to_json
from evalflows.store.store import Store

N = 120
NAMES = ("base", "first", "second")
CANDIDATES = {"run": 1, "several": 2, "rejected": 1}
"""Situations, and how many candidates each has."""

QUERY = """select metric, target, mean, ci_low, ci_high, difference, difference_low, difference_high, p_value,
p_adjusted, conclusion, reason_code, margin from results where baseline is not null and scored > 0"""


@pytest.fixture(params=[one if one == "rejected" else pytest.param(one, marks=pytest.mark.slow) for one in CANDIDATES])
def situation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    filled(request.param)
    return str(request.param)


def filled(situation: str) -> None:
    """A run of a baseline and candidates. `tone` is better in 7 examples and worse in none: significant among two
    metrics, p 0.031, and not among five, 0.063."""
    past, names = Past(), NAMES[: 1 + CANDIDATES[situation]]
    targets = [{"kind": "python", "name": name, "function": "bot:answer"} for name in names]
    metrics = {f"noise {place}": lambda _, place=place: passes(0.5, N, 50 + place) for place in range(3)}
    spec = past.spec(targets=targets, metrics={"tone": {"range": [0, 1]}})
    rows = []
    for place, name in enumerate(names):
        right = passes(0.4, N, 1)[:, 0] | (passes(0.5, N, 2)[:, 0] if place else False)
        tone = passes(0.4, N, 3)[:, 0]
        tone[np.flatnonzero(~tone)[: 7 * (place > 0)]] = True
        scores = {"right": right, "tone": tone, **{metric: drawn(place) for metric, drawn in metrics.items()}}
        rows.append(past.experiment(scores, spec=spec, run_group="together", target=name, name=f"qa-{name}"))
    reader = MetricReader(past.store)
    for row in rows:
        past.store.publish("estimates", row.experiment_id, list(estimate_rows(reader, row, spec)))
    past.store.publish("verdicts", "together", list(verdicts_on(reader, rows, spec)))
    if situation != "run":
        gate = GateSpec(name="release", superiority=["tone"], non_inferiority={"noise 0": 0.3})
        for row in rows[1:]:
            decide_on(row.experiment_id, rows[0].experiment_id, gate)
    if situation == "rejected":
        observed = to_json({"evaluator_version": "e1", "evaluator": "tone"})
        said = {"subject_kind": "judge", "subject_id": "tone", "name": "people", "message": "kappa 0.1 [-0.1, 0.3]"}
        check = CheckRow(check_id="c", batch_id="people-1", passed=False, observed=observed, **said)
        past.store.publish("checks", "people-1", [check])


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def candidates() -> list[str]:
    return [
        identity for ((identity),) in [(f"exp-{n:03}",) for n in range(1, 3)] if Store().read("experiments", identity)
    ]


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def cells_with(html: str, *words: str) -> list[str]:
    return [joined for row in table_rows(html) if all(word in (joined := " ".join(row)) for word in words)]


def page(address: str) -> str:
    answer = TestClient(application(Store()), base_url="http://127.0.0.1:4280").get(address)
    assert answer.status_code == 200, answer.text
    return answer.text


def artifact() -> str:
    store, ids = Store(), ["exp-000", *candidates()]
    return results_page(
        "together",
        experiments_report(store, ids, results_of(store, ids), decisions_of(store, ids), with_worst=False),
        quotes_data=False,
    )


def html_report() -> str:
    file = Path(os.environ["EVALFLOWS_SPOOL"]).with_name("report.html")
    printed("report", "together", "-o", str(file))
    return file.read_text()


LINES: Mapping[str, Callable[[], str]] = {
    "terminal": lambda: printed("show", "together", "--all", "--wide"),
    "artifact": artifact,
    "report as Markdown": lambda: printed("report", "together", "--format", "md"),
    "tool": lambda: ReadingTools(Store(), lambda _: "").results("together"),
}
"""Doors with a line for each metric and system: mean, difference and verdict in words."""

TABLES: Mapping[str, Callable[[str], str]] = {
    "page of an experiment": lambda identity: page(f"/experiments/{identity}"),
    "page Compare": lambda identity: page(f"/compare?baseline=exp-000&candidate={identity}"),
    "notebook": lambda identity: ExperimentResult(identity)._repr_html_(),
    "notebook of a difference": lambda identity: diff_of("exp-000", identity)._repr_html_(),
}
"""Doors of HTML with a row for each metric."""


def test_every_door_has_the_verdict_and_figures_of_the_mart(situation: str, tmp_path: Path) -> None:
    rows = Store().query(QUERY)
    facts = {(row[0], row[1]): row[2:] for row in rows}
    found = {key: conclusion_text(*values[-3:]) for key, values in facts.items()}
    first = found["tone", "first"]
    assert (
        first
        == {
            "run": "not enough evidence",
            "several": "better",
            "rejected": "not enough evidence",
        }[situation]
    )
    assert found["right", "first"] == "better" and found["noise 0", "first"].startswith(
        "equivalent (margin 0.3)" if situation != "run" else "no significant difference"
    ), found

    results = [one for one in results_of(Store(), ["exp-000", *candidates()]) if one.baseline and one.scored]
    assert {(one.metric, one.target) for one in results} == {*facts}
    numbers = ("mean", "ci_low", "ci_high", "difference", "difference_low", "difference_high", "p_value", "p_adjusted")
    assert [tuple(getattr(one, name) for name in numbers) for one in results] == [
        facts[one.metric, one.target][:-3] for one in results
    ]

    shown = json.loads(printed("show", "together", "--format", "json"))["metrics"]
    against = {(one["metric"], one["target"]): one["against_baseline"] for one in shown if one["against_baseline"]}
    assert {key: one["verdict"] for key, one in against.items()} == found
    assert {key: (one["difference"], one["p_adjusted"]) for key, one in against.items()} == {
        key: (values[3], values[7]) for key, values in facts.items()
    }
    file = tmp_path / "store.duckdb"
    printed("export", "duckdb", str(file), "--copy", "--only", "results")
    with duckdb.connect(str(file), read_only=True) as exported:
        assert {(row[0], row[1]): row[2:] for row in exported.execute(QUERY).fetchall()} == facts
    rows = [tuple(json.loads(line).values()) for line in printed("sql", QUERY, "--format", "json").splitlines()]
    assert {(row[0], row[1]): row[2:] for row in rows} == facts

    shown_results = [one for one in results if one.metric in ("right", "tone", "noise 0")]
    lines = {door: made() for door, made in LINES.items()}
    report = {"report as HTML": html_report()}
    tables = {one: {door: made(one) for door, made in TABLES.items()} | report for one in candidates()}
    for door, text in lines.items():
        for one in shown_results:
            line = " ".join(
                " ".join(lines_with(text, one.metric, f" {one.target} " if door == "terminal" else one.target)).split()
            )
            wanted = (found[one.metric, one.target], one.mean_text, one.difference_text)
            assert all(words in line for words in wanted), (door, wanted, line)
    for identity, made in tables.items():
        for door, html in made.items():
            for one in (one for one in shown_results if one.experiment_id == identity):
                rows = cells_with(html, one.metric, one.difference_text.partition(" ")[0])
                assert any(found[one.metric, one.target] in row for row in rows), (door, one.metric, rows)
    for one in (one for one in results if one.metric == "right"):
        own = [each for each in results if each.experiment_id == one.experiment_id]
        decisions = decisions_of(Store(), [one.experiment_id])
        said, gate = headline(own, decisions), None if situation == "run" else "PASS"
        open_ones = [replace(decision, conclusion="NOT ENOUGH EVIDENCE") for decision in decisions]
        assert not gate or headline(own, [*decisions, *open_ones]).word == "NOT ENOUGH EVIDENCE", "the worst of them"
        elsewhere = [replace(decision, baseline_experiment_id="other") for decision in open_ones]
        assert headline(own, elsewhere).word == "better", "another question"
        assert (said.word, [*said.gates]) == (gate or "better", ["release"] if gate else [])
        for door, text in lines.items():
            assert said.sentence in " ".join(text.split()), door
        for door, html in tables[one.experiment_id].items():
            begin, better, _ = shown_text(html).partition("better in right")
            assert better and (gate or "better") in begin + better, (door, begin[-200:])
        dear = replace(one, metric="cost", conclusion="worse")
        worse = replace(one, metric="tone", conclusion="worse")
        words = [
            headline(some).word for some in ([one, dear], [one, worse], [worse], [one, replace(dear, metric="tokens")])
        ]
        assert words == ["mixed", "mixed", "worse", "better"], "never better while something else is worse"
        assert headline([replace(one, conclusion="equivalent"), dear]).word == "worse in cost"
    card = {row.name: row.verdict for row in card_of(reported(Store(), "together")).rows}
    several = len(candidates()) > 1
    assert card == {f"{metric} of {name}" if several else metric: verdict for (metric, name), verdict in found.items()}
    for address in ("/", "/experiments?metric=noise+0"):
        said = shown_text(page(address))
        assert found["noise 0", "first"] in said, (address, said)


def with_every_remark() -> None:
    """Two experiments about which there is every kind of remark."""
    n = 60
    past = Past([f"c{place // 10}" for place in range(n)])
    targets = [{"kind": "python", "name": name, "function": "bot:answer"} for name in ("base", "first")]
    rules = [{"use": "exact_match"}, {"use": "app:judge", "fallback": "contains"}]
    panel = [{"name": "points", "panel": ["one", "two"]}]
    spec = past.spec(targets=targets, evaluators=rules, metrics={"near": {"range": [0, 1]}}, composites=panel)
    near = np.random.default_rng(4).normal([[0.75], [0.77]], 0.01, (2, n))
    scores = {
        "judge": passes(0.5, n, 1)[:, 0],
        "exact_match": np.zeros(n),
        "points": np.where(np.arange(n) < 5, 4.0, 0.0),
        "rarely": np.full(n, ABSTAINED),
        "flaky": np.where(np.arange(n) < 5, FAILED, passes(0.5, n, 2)[:, 0]),
    }
    of_first = {"of one": scores["judge"], "once": np.where(np.arange(n) < 1, 1.0, ABSTAINED)}
    rows = [
        past.experiment(
            scores | {"near": near[place]} | ({} if place else of_first),
            spec=spec,
            run_group="together",
            target=name,
            name=f"qa-{name}",
            target_version=f"v{place}",
            target_kind="conversation" if place else "python",
            budget_usd=1.0,
            evaluators=to_json([{"name": one, "version": "e1"} for one in (*scores, "near", *of_first)]),
        )
        for place, name in enumerate(("base", "first"))
    ]
    for place in range(5):
        past.experiment({"judge": scores["judge"]}, target_version=f"earlier {place}", started_at=START, spec=spec)
    store, first = past.store, rows[1].experiment_id
    judged = store.read("judgements", first)
    by_fallback = [
        replace(one, decided_by="fallback contains") if one.metric == "judge" and place % 2 else one
        for place, one in enumerate(judged)
    ]
    seated = {"judge_model": "one", "calls": 0, "metadata": to_json({"left_out": {"two": "judge failed validation"}})}
    by_panel = [replace(one, **seated) if one.metric == "points" else one for one in by_fallback]
    store.publish("judgements", first, by_panel)
    outputs = [replace(one, outputs='{"output": "1"}') for one in store.read("outputs", first)]
    thinking = replace(outputs[0], outputs=to_json({"output": "\n<think>One?</think>1"}))
    tried_again = {"output": "1", "invalid_trials": [{"verdict": "gave_up", "comment": "down"}]}
    second = replace(outputs[1], outputs=to_json(tried_again))
    store.publish("outputs", first, [thinking, second, *outputs[2:]])
    call = {"experiment_id": first, "connection": "openai", "model": "m", "status": "ok"}
    in_batch = make_row("calls", call_id="c", batch_id="batch_1", **call)
    calls = [
        in_batch,
        make_row("calls", call_id="a", **call),
        make_row("calls", call_id="b", estimated_usd=0.5, **call),
    ]
    store.publish("calls", first, calls)
    cut = {"experiment_id": first, "connection": "openai", "width": 4, "reason": "refused"}
    store.publish("limits", first, [make_row("limits", limit_id="l", **cut)])
    told = {"subject_kind": "judge", "passed": False}
    control = make_row(
        "checks",
        check_id="k",
        batch_id=controls_batch("together"),
        subject_id="other",
        name="controls",
        message="agrees with 3 of 10 controls",
        **told,
    )
    passed = replace(control, check_id="v", subject_id="sound", passed=True, message="agrees with 9 of 10 controls")
    store.publish("checks", control.batch_id, [control, passed])
    in_bundle = {"batch_id": bundles_batch("together"), "name": "bundle"}
    apart = replace(control, check_id="a", message="its scores are 20% apart from those alone", **in_bundle)
    alike = replace(apart, check_id="e", subject_id="sound", passed=True, message="its scores are 1% apart")
    store.publish("checks", apart.batch_id, [apart, alike])
    observed = to_json({"evaluator_version": "e1", "evaluator": "of one"})
    people = make_row(
        "checks", check_id="p", batch_id="people-1", subject_id="of one", name="people", observed=observed, **told
    )
    store.publish("checks", people.batch_id, [people])
    drifted = {"name": "drift", "column_name": "judge", "message": "the judge of judge has drifted: on 30 anchors"}
    drift = make_row("checks", check_id="d", batch_id=drift_batch("together"), subject_id="judge", **drifted, **told)
    store.publish("checks", drift.batch_id, [drift])
    keep_copies(store, rows[0].snapshot_id, [Copy("e1", "final-1", 0.95)])
    quarantined = "in quarantine: 1 of 9 examples (11%), until 2027-01-31: it samples; examples: e1"
    keep_check(store, "q", QUARANTINE, ("experiment", first), quarantined, passed=False)
    reader = MetricReader(store)
    for row in rows:
        store.publish("estimates", row.experiment_id, list(estimate_rows(reader, row, spec)))
    store.publish("verdicts", "together", list(verdicts_on(reader, rows, spec)))
    decide_on(first, rows[0].experiment_id, GateSpec(name="release", non_inferiority={"judge": 0.3}))


def test_every_remark_is_at_every_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    with_every_remark()
    tool = ReadingTools(Store(), lambda _: "").results("together")
    unfenced = re.sub(r"\[BEGIN (\w+)\].*?\[END \1\]", "", tool, flags=re.DOTALL)
    assert "down (example" in tool and "down" not in unfenced, "an error may quote what somebody wants an agent to do"
    ids = ["exp-000", "exp-001"]
    report = experiments_report(Store(), ids, results_of(Store(), ids))
    assert {one.kind for one in report.remarks} == {*SEVERITIES}, report.remarks
    order = [*SEVERITIES]
    assert [*map(order.index, (one.kind for one in report.remarks))] == sorted(
        order.index(one.kind) for one in report.remarks
    )
    shown = json.loads(printed("show", "together", "--format", "json"))["remarks"]
    assert [(one["kind"], one["text"]) for one in shown] == [(one.kind, one.text) for one in report.remarks]
    notebooks = [shown_text(ExperimentResult(one)._repr_html_()) for one in ids]
    whole = {**{door: " ".join(made().split()) for door, made in LINES.items()}, "notebook": " ".join(notebooks)}
    pages = {"pages": " ".join(shown_text(page(f"/experiments/{one}")) for one in ids)}
    pages["report as HTML"] = shown_text(html_report())
    for door, text in (whole | pages).items():
        for one in report.remarks:
            in_table = door in pages and one.kind in ("failure", "controls", "validated", "bundle", "bundled")
            wanted = one.text.rpartition(": ")[2].partition(" (")[0] if in_table else one.text
            is_without_data = door == "artifact" or (door == "tool" and one.kind in ("copies", "quarantine"))
            wanted = one.without_data or wanted if is_without_data else wanted
            wanted = wanted.replace("`", "") if door in pages else wanted  # there it is code
            assert wanted in text.replace("\\", ""), (door, one)
    alone = experiments_report(Store(), ids[:1], results_of(Store(), ids[:1]))  # no gate has decided on it
    assert [*card_of(reported(Store(), ids[0])).sentences] == alone.sentences != [], "PNG"
    (decision,) = json.loads(printed("show", "together", "--format", "json"))["decisions"]
    assert {*decision["limits"]} <= {*card_of(reported(Store(), "together")).sentences}, "PNG of a decision"


DOORS = {
    *("api/deciding.py", "api/results.py", "cli/diff.py", "cli/explain.py", "cli/run.py", "mcp_server.py"),
    *("dashboard/experiments.py", "dashboard/home.py", "dashboard/notebook.py", "dashboard/report_file.py"),
    *("cli/trying.py", "dashboard/datasets.py"),  # what they show has no verdict
    *("pytest_plugin/asserts.py", "pytest_plugin/message.py"),  # of the decision that they have just made
}
"""Modules outside the reports that ask for results. One that is added belongs into the test above."""


def test_each_module_that_shows_results_is_known() -> None:
    root = Path(evalflows.__file__).parent
    asks = re.compile(
        r"\b(results_of|results_against|experiments_report|listed_experiments|diff_of|current_verdicts)\("
    )
    above = {"reports", "analysis", "store"}
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] not in above and asks.search(path.read_text(encoding="utf-8"))
    }
    assert found == DOORS
