"""evalflows evaluators: what is listed and told of each, and a row that is judged as in a run."""

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from endpoint import Endpoint, completion, error, serving

from evalflows import decide_on
from evalflows.cli.main import cli
from evalflows.evaluators import SHORT_NAMES
from evalflows.specs import InputError
from evalflows.specs.gate import GateSpec
from evalflows.store import Store
from evalflows.store.schemas import TABLES

KEY = "sk-proj-AbC123dEf456"
ROW = {"inputs": {"question": "Capital of France?"}, "outputs": {"output": "paris"}, "reference_outputs": "Paris"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, and an environment that knows no provider but has one key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("EVALFLOWS_CONNECTIONS", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OUR_KEY", KEY)
    return tmp_path


def evaluators(*arguments: str) -> Result:
    done = CliRunner().invoke(cli, ["evaluators", *arguments])
    assert KEY not in done.output
    return done


def listed(*arguments: str) -> dict[str, dict[str, Any]]:
    done = evaluators(*arguments, "--format", "json")
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    return {one["name"]: one for one in (found if isinstance(found, list) else [found])}


def share(**connections: dict[str, Any]) -> None:
    Path("connections.yaml").write_text(yaml.safe_dump(connections))


def mine(source: str, module: str) -> None:
    Path(f"{module}.py").write_text(source)


# Listed and told


def test_all_of_ours_are_listed_in_every_format() -> None:
    assert [*listed()] == [*SHORT_NAMES]
    table = evaluators().stdout
    assert [name for name in SHORT_NAMES if re.search(rf"^{name} ", table, flags=re.M)] == [*SHORT_NAMES]
    rows = [*csv.DictReader(io.StringIO(evaluators("--format", "csv").stdout))]
    assert [row["name"] for row in rows] == [*SHORT_NAMES]
    assert [*rows[0]] == ["name", "judges_by", "scope", "asks_for", "reference", "returns", "about"]


def test_the_metrics_are_those_by_the_settings_that_are_given() -> None:
    args = ("--set", "criteria=[detail, harmfulness]")
    (one,) = listed("criteria", *args).values()
    assert {metric: said["higher_is_better"] for metric, said in one["returns"].items()} == {
        "criteria": True,
        "detail": True,
        "harmfulness": False,
    }
    assert "harmfulness: 0 to 1, lower is better" in evaluators("criteria", *args).stdout


def test_one_of_your_own_is_told_too() -> None:
    mine(
        "class Short:\n"
        "    'Whether it is short.'\n"
        "    metrics = {'short': {'range': [0, 2], 'higher_is_better': False}}\n"
        "    __name__ = 'short'\n"
        "    def __call__(self, output, *, most=9): return len(output) <= most\n"
        "short = Short()\n",
        "mine_told",
    )
    (one,) = listed("mine_told:short").values()
    assert (one["judges_by"], one["asks_for"], one["settings"]) == ("rule", ["output"], {"most": "9"})
    assert one["returns"] == {"short": {"higher_is_better": False, "range": [0.0, 2.0]}}


# Tried by rule


def tried(*arguments: str, row: Any = ROW) -> list[dict[str, Any]]:
    done = evaluators(*arguments, "--try", row if isinstance(row, str) else json.dumps(row), "--format", "json")
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_rule_judges_the_row_with_the_settings_that_are_given() -> None:
    (no,), (yes,) = tried("exact_match"), tried("exact_match", "--set", "ignore_case=true")
    assert (no["value"], yes["value"], no["status"]) == (0.0, 1.0, "scored")
    assert evaluators("exact_match", "--try", json.dumps(ROW)).stdout.splitlines()[0] == "exact_match: false"


def test_value_label_and_comment_of_each_score_are_printed() -> None:
    mine(
        "from evalflows.evaluators import Score\n"
        "def graded(outputs, reference_outputs, *, top=1):\n"
        "    text = outputs['output']\n"
        "    return [Score(value=len(text) / top, label='short', comment='five\\nletters'),\n"
        "            Score(key='same', value=text == reference_outputs['output']), Score(key='none')]\n",
        "mine_graded",
    )
    done = evaluators("mine_graded:graded", "--try", json.dumps(ROW), "--set", "top=4")
    assert done.stdout.splitlines() == [
        "graded: 1.25 (short)",
        "  five",
        "  letters",
        "same: false",
        "none: does not apply",
        "0 model calls, 0 from the ledger, 0.000000 USD",
    ]


def test_a_row_of_a_file_goes_by_its_line() -> None:
    rows = [{"inputs": "q", "outputs": "no"}, None, {"inputs": "q", "outputs": "21", "reference_outputs": "21"}]
    Path("rows.jsonl").write_text("\n".join("" if row is None else json.dumps(row) for row in rows))
    (third,) = tried("numeric_closeness", row="rows.jsonl:3")
    assert (third["value"], third["comment"]) == (1.0, "read 21, wanted 21")
    (first,) = tried("numeric_closeness", row="rows.jsonl:1")
    assert (first["value"], first["status"]) == (None, "not_applicable")
    assert tried("label_f1", row={**ROW, "outputs": "Rome"})[0]["value"] == 0.0, "of an experiment of one row"
    mine("def seen(output, metadata, example):\n    return f'{output} {metadata} {example.split}'\n", "mine_seen")
    row = {"inputs": "q", "outputs": [1], "metadata": {"risk": "high"}, "split": "dev"}
    assert tried("mine_seen:seen", row=row)[0]["label"] == "[1] {'risk': 'high'} dev"
    assert {table: Store().query(f"select count(*) from source.{table}")[0][0] for table in TABLES} == dict.fromkeys(
        TABLES, 0
    ), "a rule leaves nothing in the store"


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_a_trial_can_be_kept_as_an_experiment_that_is_no_baseline() -> None:
    def asked(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments))

    row = json.dumps({**ROW, "metadata": {"risk": "high"}})
    done = evaluators("exact_match", "--set", "ignore_case=true", "--try", row, "--keep")
    assert done.exit_code == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first == "exact_match: true"
    identity = last.removeprefix("kept: evalflows show ")
    (listed,) = json.loads(asked("ls", "--tag", "trial", "--format", "json").stdout)
    assert (listed["experiment_id"], listed["tags"], listed["answered"]) == (identity, ["trial"], 1)
    shown = json.loads(asked("show", identity, "--format", "json").stdout)
    assert [one["mean"] for one in shown["metrics"] if one["metric"] == "exact_match"] == [1.0]
    assert shown["next"] == f"evalflows show {identity} --all", "not to approve it"
    refused = asked("baseline", "approve", identity)
    assert refused.exit_code == 2 and "got the tag 'trial', wanted a baseline that gates may use" in refused.stderr
    with pytest.raises(InputError, match="got the tag 'trial', wanted a run that gates may decide on"):
        decide_on(identity, None, GateSpec(thresholds={"exact_match": 0.5}))
    as_json = evaluators("exact_match", "--try", row, "--keep", "--format", "json")
    (scored,) = json.loads(as_json.stdout)
    assert scored["value"] == 0.0 and as_json.stderr.splitlines()[-1].startswith("kept: evalflows")


def test_what_cannot_work_is_one_line_and_exit_2() -> None:
    row = json.dumps(ROW)
    for arguments, message in (
        (("exact_match", "--keep"), "--keep: wanted --try too"),
        (("nothing",), "evaluator 'nothing': wanted 'module:name' or one of: actions_match, agent, "),
        (("nowhere:f",), "'nowhere:f': cannot import 'nowhere'"),
        (("--try", "{}"), "--try: wanted the name of an evaluator too"),
        (("regex", "--set", "patern=a"), "evaluator 'regex': got the setting 'patern', wanted"),
        (("regex", "--set", "pattern=["), "--set pattern=[: the value is not YAML"),
        (("regex", "--try", row), "evaluator 'regex': asks for 'pattern'"),
        (("length_between", "--set", "unit=lines", "--try", row), "evaluator 'length_between': unit: got 'lines'"),
        (("exact_match", "--try", '{"inputs": '), "--try: not JSON: "),
        (("exact_match", "--try", "[1]"), "--try: got [1], wanted a JSON object"),
        (("exact_match", "--try", '{"inputs": 1}'), "--try:1: no outputs: got inputs, wanted 'outputs'"),
        (("exact_match", "--try", json.dumps({**ROW, "answer": 1})), "--try:1: got the field 'answer'"),
        (("exact_match", "--try", "one.jsonl:2"), "one.jsonl: has no row 2"),
        (("toxicity", "--try", row, "--connection", "x"), "connection 'x': wanted one"),
        (("toxicity", "--try", row), "evaluator 'toxicity': connection 'openai': the environment variable"),
    ):
        Path("one.jsonl").write_text(row + "\n")
        done = evaluators(*arguments)
        assert (done.exit_code, done.stdout) == (2, ""), arguments
        assert done.stderr.startswith(f"evalflows: {message}") and done.stderr.count("\n") == 1, done.stderr


# Tried by a model


def verdict(correct: bool) -> Any:
    return lambda request: completion(json.dumps({"reasoning": "Both name it.", "correct": correct}))


def provider(endpoint: Endpoint, **more: Any) -> None:
    prices = {"usd_per_million_input_tokens": 2.0, "usd_per_million_output_tokens": 10.0}
    share(ours={"base_url": endpoint.base_url, "model": "m", "api_key_env": "OUR_KEY", **prices, **more})


def judge(name: str, *arguments: str, row: Any = ROW) -> Result:
    return evaluators(name, "--try", json.dumps(row), "--connection", "ours", *arguments)


def test_a_judge_asks_its_model_and_says_what_it_cost_and_who_answered() -> None:
    with serving(Endpoint(answer=verdict(False))) as endpoint:
        provider(endpoint)
        done = judge("correctness", "--model", "other")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "correctness: false",
        "  Both name it.",
        "1 model calls, 0 from the ledger, 0.000070 USD; model mock-1",  # 10 x 2 + 5 x 10 USD a million
    ]
    assert endpoint.requests[0]["model"] == "other"
    assert "Capital of France?" in endpoint.requests[0]["messages"][0]["content"]
    assert endpoint.keys == [f"bearer {KEY}".lower()]


def test_a_call_is_paid_once_and_is_all_that_is_kept() -> None:
    with serving(Endpoint(answer=verdict(True))) as endpoint:
        provider(endpoint)
        first, again = judge("correctness"), judge("correctness", "--format", "json")
        judge("correctness", "--set", "instructions=Be strict.")
    assert endpoint.calls == 2, "another question is another call"
    assert "1 model calls, 0 from the ledger" in first.stdout
    (said,) = json.loads(again.stdout)
    assert (said["value"], said["calls"], said["calls_cached"], said["cost_usd"]) == (1.0, 0, 1, 0.0)
    store = Store()
    counts = {table: store.query(f"select count(*) from source.{table}")[0][0] for table in TABLES}
    assert counts == dict.fromkeys(TABLES, 0) | {"calls": 2}
    kept = store.query("select distinct evaluator, status, starts_with(experiment_id, 'trial-') from source.calls")
    assert kept == [("correctness", "ok", True)]
    assert store.query("select count(*) from source.calls where request like '%sk-proj%'") == [(0,)]


def test_a_model_that_gives_no_answer_is_one_line_and_exit_4_and_one_that_refuses_the_request_is_exit_2() -> None:
    for reply, code, says in (
        (error(503, "down\nfor now"), 4, "HTTP 503: down for now"),
        (error(401, f"no such key: {KEY}"), 4, "HTTP 401: no such key: …"),
        (completion("I think it is right."), 4, "wanted JSON"),
        (error(400, "temperature is not known"), 2, "temperature is not known"),
    ):
        with serving(Endpoint(answer=lambda request, reply=reply: reply)) as endpoint:
            provider(endpoint, attempts=1)
            done = judge("correctness")
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (code, "", 1)
        assert done.stderr.startswith("evalflows: evaluator 'correctness': ") and says in done.stderr
