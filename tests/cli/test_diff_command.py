"""`evalflows diff`, as users have it: names, wrong names, texts from outside, JSON, Markdown; and what `show` adds."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from past import ABSTAINED, Past

from evalflows import decide_on, diff
from evalflows.cli.main import cli
from evalflows.reports.diff import diff_markdown, diff_of
from evalflows.reports.previous_runs import previous_runs
from evalflows.specs.gate import GateSpec
from evalflows.store import Store
from evalflows.store.records import OutputRow, derived_id, to_json

EVIL = "\x1b[31m<script>alert(1)</script> [x](javascript:y)\n=HYPERLINK(1) \u202egnp"


def called(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == code, done.output
    return done


def answers(past: Past, owner: str, texts: dict[str, str]) -> None:
    rows = [
        OutputRow(
            run_id=derived_id(owner, example, 0),
            experiment_id=owner,
            example_id=example,
            repetition=0,
            outputs=to_json({"answer": text}),
            status="ok",
        )
        for example, text in texts.items()
    ]
    past.store.publish("outputs", owner, rows)


@pytest.fixture(autouse=True)
def past(monkeypatch: pytest.MonkeyPatch) -> Past:
    """support, run twice; the second run is worse on e0 and better on e1; and an experiment on other examples."""
    monkeypatch.setenv("COLUMNS", "80")
    past = Past(fields=[{"split": "hard" if place < 5 else "easy"} for place in range(10)])
    old, new = np.arange(10) % 2, np.arange(10) % 2
    old[0], new[0], old[1], new[1] = 1, 0, 0, 1
    for version, scores in (("v1", old), ("v2", new)):
        row = past.experiment({"right": scores.astype(bool)}, target_version=version, name="support")
        texts = {f"e{place}": "the same answer" for place in range(10)}
        answers(past, row.experiment_id, texts | {"e0": f"the {version} answer", "e1": f"{version} {EVIL}"})
    return past


def test_texts_from_outside_are_harmless(past: Past) -> None:
    for form in ("table", "md", "json"):
        printed = called("diff", "exp-000", "exp-001", "--format", form).stdout
        assert "\x1b" not in printed and "\u202e" not in printed
        assert form != "md" or ("<script>" not in printed and "](javascript" not in printed)
    found = diff_of(past.store, "exp-000", ["exp-001"])
    (worse, *_) = found.lists
    said = replace(worse, examples=[replace(worse.examples[0], comment=EVIL, baseline_comment=f"{EVIL}!")])
    commented = diff_markdown(replace(found, lists=[said]))
    assert "comment: " in commented and "<script>" not in commented and "](javascript" not in commented


def test_json_is_one_document() -> None:
    found: dict[str, Any] = json.loads(called("diff", "exp-000", "exp-001", "--format", "json").stdout)
    assert found["baseline"]["experiment_id"] == "exp-000" and found["where"] is None
    (right,) = [one for one in found["metrics"] if one["metric"] == "right" and one["against_baseline"]]
    assert (right["experiment_id"], right["against_baseline"]["difference"]) == ("exp-001", 0.0)
    assert [(one["change"], one["count"]) for one in found["examples"]] == [("regressed", 1), ("improved", 1)]
    assert found["examples"][0]["examples"][0]["outputs"] == {"answer": "the v2 answer"}
    printed = called("diff", "exp-000", "exp-001", "--where", "split = 'hard'").stdout
    assert "only the examples where split = 'hard' are compared: 5" in printed


def test_bad_input_is_one_line(past: Past) -> None:
    past.fields = None
    past.experiment({"right": np.ones(2)}, examples=["x", "y"], name="other")
    for arguments, message in (
        (["support"], "diff: got one experiment, 'support', wanted a baseline and a candidate"),
        (["exp-000", "exp-000"], "experiment 'support' (exp-000): got it twice, wanted different ones"),
        (["exp-000", "suport"], "experiment 'suport': not in"),
        (["support~2", "support"], "experiment 'support~2': there are only 2 runs named 'support'"),
        (["exp-000", "exp-001", "--metric", "rigth"], "metric: got 'rigth', wanted right"),
        (["exp-000", "other"], "experiments 'support' and 'other': got no common example"),
        (["exp-000", "exp-001", "--where", "1 +"], "where '1 +': sql: Parser Error"),
    ):
        done = called("diff", *arguments, code=2)
        *_, last = done.stderr.splitlines()
        assert last.startswith(f"evalflows: {message}") and done.stdout == ""
        assert len(done.stderr.splitlines()) <= 2, "at most one about a name with several runs before it"


@pytest.mark.slow
def test_show_says_how_it_did_against_the_run_before() -> None:
    printed = " ".join(called("show", "exp-001").stdout.split())
    assert (
        "against the previous run support (2026-01-01 00:00 UTC): right 0.500 → 0.500, no significant difference"
        in printed
    )
    assert "all of it: evalflows diff exp-000 exp-001" in printed
    assert "previous run" not in called("show", "exp-000").stdout
    (previous,) = json.loads(called("show", "exp-001", "--format", "json").stdout)["previous"]
    assert (previous["previous_experiment_id"], previous["command"]) == ("exp-000", "evalflows diff exp-000 exp-001")
    (metric,) = previous["metrics"]
    assert (metric["metric"], metric["previous_mean"], metric["mean"], metric["difference"]) == ("right", 0.5, 0.5, 0.0)
    assert json.loads(called("show", "exp-000", "--format", "json").stdout)["previous"] == []


def test_a_run_on_other_examples_is_no_previous_run(past: Past) -> None:
    past.fields = None
    past.experiment({"right": np.ones(2)}, examples=["x", "y"], name="support")
    assert "previous run" not in called("show", "exp-002").stdout


def test_a_slice_that_departs_is_named_with_a_command_that_shows_its_examples(past: Past, tmp_path: Path) -> None:
    topics = ["billing", 'say "hi"', "other", "more"]
    past.fields = [
        {"metadata": {"topic": topics[place % 4], "level": place % 3 + 0.5, "age": place, "vip": place % 7 < 3}}
        for place in range(200)
    ]
    right = np.arange(200) % 10 > 0
    for version, lost in (("old", right & False), ("new", np.arange(200) % 8 == 0), ("same", right & False)):
        past.experiment({"right": right & ~lost}, target_version=version, name=version)
    done = called("diff", "old", "new", "same", "--slices", "--limit", "0")
    said = " ".join(done.stdout.split())
    assert re.search(r"1 slice stands out from the overall difference of new against old", said)
    assert re.search(r"right metadata\.topic=billing 50 -0\.40 \[-0\.54, -0\.24\] \+0\.000 <0\.001 worse", said), said
    assert re.search(r"no slice stands out from the overall difference of same against old", said)
    assert "length of inputs, metadata.age, metadata.level, metadata.topic, metadata.vip in 1 metric (right), " in said
    (command,) = re.findall(r"examples of the first: evalflows (diff .*)", done.stdout)
    assert (
        "only the examples where metadata->>'topic' = 'billing' are compared: 50"
        in called(*shlex.split(command)).stdout
    )
    assert (
        "metadata.topic=billing are compared: 50"
        in called("diff", "old", "new", "--where", "metadata.topic=billing").stdout
    )
    (worse, same) = json.loads(called("diff", "old", "new", "same", "--slices", "--format", "json").stdout)["slices"]
    assert (worse["metrics"], same["found"]) == (["right"], [])
    found = diff("old", "new").slices()
    assert found[["slice", "n_examples", "is_worse", "is_loss"]].values.tolist() == [
        ["metadata.topic=billing", 50, True, True]
    ]
    with pytest.warns(
        UserWarning,
        match=r"no slice has 20 examples, and as many outside; not searched: metadata.level \(3 values of 10 ",
    ):
        assert diff("old", "new", where="(metadata->>'age')::int < 30").slices().empty
    gate = GateSpec(name="release", non_inferiority={"right": 0.02})
    failed, passed = decide_on("new", "old", gate), decide_on("same", "old", gate)
    assert (failed.conclusion, passed.conclusion) == ("FAIL", "PASS")
    (since,) = previous_runs(Store(), [(failed.candidate_experiment_id, str(failed.baseline_experiment_id))])
    assert [one.margin for one in since.metrics] == [0.02], "the gate's, since it decided against that run"
    explained = called("explain", failed.decision_id).stdout
    assert (
        "worse than elsewhere in metadata.topic=billing: right -0.40 [-0.54, -0.24] in 50 examples, +0.000"
        in " ".join(explained.split())
    )
    assert f"examples of the first: evalflows {command}" in explained
    called("report", failed.decision_id, "-o", str(report := tmp_path / "report.html"))
    headline = re.search(r'<p class="headline worse">.*?</p>', report.read_text(), re.DOTALL)
    assert headline and "<br>worse than elsewhere in metadata.topic=billing" in headline[0]
    assert "stands out" not in called("explain", passed.decision_id).stdout
    sql = "select any_value(decision_id), any_value(slice) filter (stands_out), count(*) > 10 from slice_differences"
    assert Store().query(sql) == [(failed.decision_id, "metadata.topic=billing", True)]
    (example,) = Store().query("select example_id from examples order by position limit 1")[0]
    called("forget", "--example", example, "--yes")
    explained = called("explain", failed.decision_id).stdout
    assert (
        "worse than elsewhere in (erased " in " ".join(explained.split()) and "examples of the first" not in explained
    )
    assert Store().query(
        "select count(*) from slice_differences where contains(concat(slice, condition), 'billing')"
    ) == [(0,)]
    fields = ["group of inputs", "length of inputs", *(f"metadata.{name}" for name in ("age", "level", "topic", "vip"))]
    assert worse["fields"] == fields


def test_the_recorded_answers_of_one_side_are_no_slice(past: Past) -> None:
    """Two systems are right in half of the examples by luck: where one was, the other can only be worse."""
    old, new = np.arange(200) % 2 == 0, np.arange(200) % 4 < 2
    past.fields = [{"metadata": {"said": "yes" if right else "no"}} for right in old]
    recorded = past.spec(targets=[{"kind": "recorded", "column": "said"}])
    past.experiment({"right": new}, name="new")
    for name, spec, wanted in (("old", recorded, False), ("python", past.spec(), True)):
        past.experiment({"right": old}, name=name, spec=spec)
        (search,) = json.loads(called("diff", name, "new", "--slices", "--format", "json").stdout)["slices"]
        assert ("metadata.said" in search["fields"], bool(search["found"])) == (wanted, wanted)


def test_a_label_that_both_answers_have_is_a_slice_too(past: Past) -> None:
    """Of a metric without values: a topic, or what a judge says of the input."""
    past.fields, places = None, np.arange(100)
    for version, is_lost in (("old", places < 0), ("new", places % 4 == 0)):
        row = past.experiment({"right": (places % 10 > 0) & ~is_lost}, target_version=version, name=version)
        scores = past.store.read("judgements", row.experiment_id)
        topics = {
            f"e{place}": "bills" if place % 4 == 0 else version if place == 1 else "other" for place in range(100)
        }
        labels = [
            replace(
                one,
                judgement_id=f"{one.judgement_id}-t",
                value=None,
                data_type="CATEGORICAL",
                label=topics[one.example_id],
            )
            for one in scores
        ]
        past.store.publish(
            "judgements", row.experiment_id, [*scores, *(replace(one, metric="topic") for one in labels)]
        )
        outputs = past.store.read("outputs", row.experiment_id)
        read = [replace(one, tokens_in=900 + 2 * int(one.example_id[1:]) + len(version)) for one in outputs]
        past.store.publish("outputs", row.experiment_id, read)
    found = diff("old", "new").slices()
    assert found[["slice", "n_examples", "where"]].values.tolist()[0] == ["label topic=bills", 25, ""]
    shown = called("diff", "old", "new", "--slices", "--limit", "0").stdout
    assert "label topic=bills" in shown and "examples of the first" not in shown

    def fields() -> list[str]:
        (search,) = json.loads(called("diff", "old", "new", "--slices", "--format", "json").stdout)["slices"]
        return list(search["fields"])

    assert fields() == ["input tokens", "label topic"]
    past.store.publish("outputs", row.experiment_id, [replace(read[0], tokens_in=None), *read[1:]])
    assert fields() == ["label topic"], "unknown for an answer"


def test_examples_with_inputs_that_are_alike_are_a_slice_once_they_were_compared(past: Past) -> None:
    asked = ["will it rain today, what is the weather in town {}?", "refund the money for order {} to my card"]
    past.fields = [{"inputs": {"q": asked[place % 2].format(place)}} for place in range(60)]
    for version, lost in (("old", np.arange(60) < 0), ("new", np.arange(60) % 2 == 1)):
        past.experiment({"right": (np.arange(60) % 10 > 0) & ~lost}, target_version=version, name=version)
    before = diff("old", "new").slices()
    assert "group of inputs=" in called("diff", "old", "new", "--slices", "--limit", "0").stdout
    found = diff("old", "new").slices()
    worse = found[found["is_loss"] & found["slice"].str.startswith("group of inputs=")]
    assert worse[["n_examples", "where"]].values.tolist() == [[30, ""]], found
    assert set(worse["slice"].item().partition("=")[2].split("_")) <= {"refund", "money", "order", "card", "for"}
    assert not before["slice"].str.contains("group of inputs").any()
    called("doctor")


def test_a_number_whose_direction_nobody_declared_says_which_one_is_taken(past: Past) -> None:
    for version, extra in (("v1", 0.0), ("v2", 3.0)):
        scores = {"words": 20 + extra + np.arange(10) % 3, "share": (np.arange(10) % 3 + extra) / 9}
        past.experiment(scores, target_version=version, name="numbers")
    printed = " ".join(called("diff", "numbers~1", "numbers", "--all").output.split())
    assert "words: higher counts as better, since nothing says otherwise; if lower is better, declare" in printed
    assert printed.count("higher counts as better") == 1, "a share is not asked about"


def test_means_differ_by_the_difference_beside_them(past: Past) -> None:
    """The metric does not apply to three answers of the baseline: these count for the candidate's own mean alone."""
    right = np.arange(10) % 2
    past.fields = None
    past.experiment({"right": np.where(np.arange(10) < 3, ABSTAINED, right)}, yes_no=["right"], name="few")
    past.experiment({"right": np.where(np.arange(10) < 3, 1, right)}, yes_no=["right"], name="all")
    said = " ".join(called("diff", "few", "all").stdout.split())
    assert "right 0.57 → 0.57 +0.00 [-0.35, +0.35] no significant 0/0 7 pairs difference" in said, said
    page = called("diff", "few", "all", "--format", "md").stdout
    assert "the answers to all 10 examples are the same on both sides" in said and "next:" not in said
    assert "| 0.700 |  | +0.00 [-0.35, +0.35], 7 pairs: 0.57 → 0.57 |" in page, page


def test_an_interval_beyond_0_to_1_says_that_no_range_is_declared(past: Past) -> None:
    past.fields, declared = None, {"share": {"range": [0, 1]}}
    for metrics in ({}, declared, declared):
        past.experiment({"share": np.array([0.1, 0.4, 1.0])}, spec=past.spec("few", metrics=metrics))
    undeclared, all_declared = (
        " ".join(called("diff", *pair, "--where", "true").output.split())
        for pair in (("exp-002", "exp-003"), ("exp-003", "exp-004"))
    )
    assert "share: no range is declared, so its interval exceeds 0 to 1; if no value can, declare" in undeclared
    assert "no range" not in all_declared
