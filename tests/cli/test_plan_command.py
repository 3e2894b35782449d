"""evalflows plan, from a spec file to what is printed; and what the run then costs at an endpoint that counts."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from endpoint import Endpoint, Reply, Request, completion, serving

from evalflows.cli.main import cli
from evalflows.cli.plan import plan
from evalflows.specs.experiment import load_experiment

N = 12
ROWS = [{"id": i, "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"a{i}"}} for i in range(N)]


NUMBERS = count()


def judging(request: Request) -> Reply:
    """A judge's verdict, by what its schema asks for; else an answer that is never given twice."""
    messages = request["messages"]
    if "response_format" not in request:
        return completion(f"{messages[-1]['content']} by {messages[0]['content']}, {next(NUMBERS)}")
    fields = request["response_format"]["json_schema"]["schema"]["properties"]
    said = {"reasoning": "so", "correct": sum(map(ord, str(messages))) % 3 > 0, "preference": 1, "score": 4}
    return completion(json.dumps({name: said[name] for name in fields}))


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """The endpoint, and in the current folder a spec with two chat targets, judges, controls, and a comparison."""
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    with serving(Endpoint(answer=judging)) as one:
        asks = {"connection": "mine"}
        chat = {"kind": "chat", "user": "{question}", **asks}
        spec = {
            "name": "small",
            "dataset": {"path": "rows.jsonl"},
            "targets": [chat | {"name": "old", "system": "old"}, chat | {"name": "new", "system": "new"}],
            "evaluators": [
                "contains",
                {"use": "correctness", "controls": 4, **asks},
                {"use": "rubric", "args": {"rubric": "good", "repeats": 2}, "sample_rate": 0.5, **asks},
            ],
            "compare": {"evaluators": {"use": "pairwise_preference", **asks}, "both_orders": True},
            "gates": [{"non_inferiority": {"contains": 0.05}}],
            "repetitions": 2,
            "connections": {"mine": connection(one)},
        }
        Path("spec.yaml").write_text(yaml.safe_dump(spec))
        yield one


def connection(endpoint: Endpoint, **changes: Any) -> dict[str, Any]:
    prices = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 4.0}
    return {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", **prices, **changes}


def command(*arguments: str) -> Result:
    return CliRunner().invoke(plan, ["spec.yaml", *arguments], catch_exceptions=False)


def told(*arguments: str) -> dict[str, Any]:
    done = command(*arguments, "--format", "json")
    assert (done.exit_code, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


COUNTED = {
    "old": 2 * N,
    "new": 2 * N,
    "correctness": 2 * 2 * N,
    "correctness: controls": 3 * 4,
    "rubric": 2 * 2 * 2 * N // 2,
    "pairwise_preference": 2 * 2 * N,
}


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_a_run_makes_the_calls_that_were_planned_and_a_second_plan_knows_what_they_took(endpoint: Endpoint) -> None:
    from evalflows import run

    before = told()
    assert {line["caller"]: line["calls"] for line in before["calls"]} == COUNTED
    assert before["total"]["calls"] == sum(COUNTED.values()) and endpoint.calls == 0
    assert {line["size"]["basis"] for line in before["calls"]} == {"upper estimate"}
    run(load_experiment("spec.yaml"))
    # the answers to trials do not fit their schema here, so that the ledger has none for the comparison's own
    assert endpoint.calls == before["total"]["calls"] + before["trials"] + 1

    after = told("--effect", "0.03")
    sizes = {line["caller"]: line["size"] for line in after["calls"]}
    assert {(one["tokens_in"], one["tokens_out"], one["usd"]) for one in sizes.values()} == {(10, 5, 30e-6)}
    assert sizes["correctness"]["basis"] == f"{COUNTED['correctness'] + 12} earlier calls of this judge"
    assert sizes["pairwise_preference"]["basis"] == f"{COUNTED['pairwise_preference']} earlier calls of this judge"
    assert [line["in_ledger"] for line in after["calls"][:2]] == [2 * N, 2 * N]
    assert before["total"]["usd"] > after["total"]["usd"] == pytest.approx((after["total"]["calls"] - 4 * N) * 30e-6)
    correctness = next(one for one in after["metrics"] if one["metric"] == "correctness")
    assert correctness["variance"]["basis"].startswith("small-new against small-old of ")
    assert (correctness["variance"]["n_pairs"], correctness["variance"]["repetitions"]) == (N, 2)
    assert any("rough, with only 12 examples" in said for said in after["sentences"])


def test_without_history_it_says_so_in_tables_and_words(endpoint: Endpoint, store_root: Path) -> None:
    done = command("--effect", "0.03")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [*filter(lambda line: line[:4] == ["correctness", "m", "≤", "48"], lines)]
    text = " ".join(done.stdout.split())
    assert "this run makes at most 204 model calls: about" in text
    assert "a difference of 0.030 in contains with 80% power, about 4,370 examples, each answered 2 times" in text
    assert "the dataset's 12 examples detect a difference of 0.6" in text
    assert "contains: estimated from a cautious guess" in text
    assert endpoint.calls == 0
    (kept,) = [path for path in store_root.rglob("*.parquet") if path.name != "_.parquet"]
    assert kept.is_relative_to(store_root / "checks"), "only the plan is kept"


def test_a_plan_can_be_shown_again(endpoint: Endpoint) -> None:
    *lines, line = command("--effect", "0.03").stdout.splitlines()
    shown = CliRunner().invoke(cli, line.removeprefix("kept: evalflows ").split())
    assert (shown.exit_code, shown.stdout.splitlines()) == (0, lines[:-1]), shown.stderr
    document = told("--effect", "0.03")
    again = CliRunner().invoke(cli, ["show", document["plan_id"], "--format", "json"])
    assert json.loads(again.stdout) == document
    several = CliRunner().invoke(cli, ["show", "plan-"])
    assert several.exit_code == 2 and "got the prefix of 2 ids, wanted a longer one" in several.stderr
    assert CliRunner().invoke(cli, ["show", "plan-0"]).exit_code == 2


def test_what_cannot_be_planned_is_one_line_and_exit_2(endpoint: Endpoint) -> None:
    for arguments, message in (
        (("--effect", "-1"), "effect: got -1, wanted a number above 0"),
        (("--metric", "charm"), "metric: no evaluator gives 'charm', wanted some of contains, correctness, rubric"),
        (("--set", "targets.0.connection=nowhere"), "connection 'nowhere': wanted one of "),
        (("--set", "repetition=3"), "spec.yaml: repetition: no such field"),
    ):
        done = command(*arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"evalflows: {message}") and done.stderr.count("\n") == 1
