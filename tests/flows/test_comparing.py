"""Experiments compared in pairs: from the function that a program calls to the verdicts, and on after a fault."""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pyarrow.parquet
import pytest
import yaml
from endpoint import Endpoint, Reply, Request, completion, error, serving
from matched import asked, experiment, judgements

from evalflows import ComparativeResult, aevaluate, aevaluate_comparative, compare, evaluate, evaluate_comparative, run
from evalflows.analysis.pairwise import ratings as ranking
from evalflows.evaluators.subject import RunView
from evalflows.llm import attempts, limiter, wrap
from evalflows.specs import ExperimentSpec, IncompleteError, InputError
from evalflows.specs.comparison import ComparisonSpec
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("prefect_api")

N = 12
NAMES = [f"q{i:02}" for i in range(N)]
ROWS = [{"id": name, "inputs": {"question": f"{name}?"}, "outputs": {"answer": name}} for name in NAMES]
Outputs = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few resamples, short pauses."""
    monkeypatch.setattr(ranking, "RESAMPLES", 20)
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(limiter, "FIRST_HOLD_S", 0.01)


def longer(outputs: Outputs) -> list[int]:
    return [len(str(one)) for one in outputs]


def answered(*names: str, n: int = N) -> list[str]:
    """Experiments of which each later one gives longer answers, all of them different."""
    questions = [f"q{i:02}" for i in range(n)]
    rows = [{"id": name, "inputs": {"question": f"{name}?"}} for name in questions]
    return [
        experiment(name, {one: f"{name} to {one}" + "!" * (5 * place) for one in questions}, place=place, rows=rows)
        for place, name in enumerate(names)
    ]


# As functions


def short(question: str) -> str:
    return question[:2]


def long(question: str) -> str:
    return question * 3


def test_experiments_that_were_run_are_compared_by_a_function() -> None:
    one, other = (evaluate(target, ROWS[:6]) for target in (short, long))
    found = evaluate((one, other), evaluators=[longer], both_orders=True)
    assert isinstance(found, ComparativeResult)
    assert (found.name, len(found)) == ("short vs long", 6)
    frame = found.to_pandas()
    assert list(frame.example_id) == NAMES[:6] and set(frame.metric) == {"longer"}
    assert (set(frame.winner), set(frame.shown_first), set(frame.outcome)) == ({"long"}, {"both"}, {"right"})
    assert (set(frame.left), set(frame.right)) == ({"short"}, {"long"})
    row = frame.iloc[2]
    assert (row["inputs.question"], row["left.output"], row["right.output"]) == ("q02?", "q0", "q02?q02?q02?")
    assert row["reference.answer"] == "q02"
    assert row.left_score < row.right_score
    (rate,) = found.win_rates().query("not length_controlled").to_dict("records")
    assert (rate["candidate"], rate["baseline"], rate["win_rate"], rate["wins"]) == ("long", "short", 1.0, 6)
    assert list(found.leaderboard().experiment) == ["long", "short"]
    assert repr(found) == f"ComparativeResult('short vs long', {found.comparison_id}, 6 pairs: longer)"
    assert [pair["example_id"] for pair in found] == NAMES[:6]
    assert all(Store().is_sealed(table, found.comparison_id) for table in ("comparisons", "comparison_sets"))


def test_in_a_drawn_order_the_table_says_who_was_shown_first() -> None:
    old, new = answered("old", "new")

    def place(runs: list[RunView]) -> dict[str, Any]:
        return {"winner": "tie", "comment": str(runs[0].experiment)}

    frame = evaluate_comparative([old, new], [place, longer]).to_pandas()
    first = frame[frame.metric == "place"]
    assert list(first.shown_first) == list(first.comment) and set(first.shown_first) == {"old", "new"}
    assert set(first.winner) == {"tie"}
    of_other = frame[frame.metric == "longer"]
    assert list(of_other.shown_first) == list(first.shown_first) and set(of_other.winner) == {"new"}


def test_what_is_said_of_a_comparison_is_kept() -> None:
    old, new = answered("old", "new")
    evaluate_comparative(
        (new, "old"),
        evaluators=[longer],
        experiment_prefix="nightly",
        description="before the release",
        metadata={"ticket": 7},
        max_concurrency=0,
        randomize_order=False,
        failed_output="left_out",
        seed=3,
    )
    ((row),) = asked(
        """select name, description, metadata ->> 'ticket', experiments, baseline_experiment_id, randomize_order,
                  failed_output_policy, seed, state, flow_run_id is not null from comparison_sets"""
    )
    assert row == ("nightly", "before the release", "7", [new, old], new, False, "left_out", 3, "completed", True)
    assert {one.shown_first for one in judgements(asked("select comparison_id from comparison_sets")[0][0])} == {
        "right"
    }


def test_a_program_with_an_event_loop_goes_on_meanwhile() -> None:
    old, new = answered("old", "new")

    async def judge(outputs: Outputs) -> str:
        await asyncio.sleep(0)
        first, second = longer(outputs)
        return "A" if first > second else "B"

    async def program() -> tuple[Any, Any]:
        return await asyncio.gather(
            aevaluate((old, new), evaluators=[judge]), aevaluate_comparative([new, old], [judge])
        )

    for found in asyncio.run(program()):
        assert {pair["winner"] for pair in found} == {"new"} and len(found) == N


def test_experiments_want_no_data_and_a_target_wants_some() -> None:
    wanted = "got experiments to compare, wanted no data, summary_evaluators or repetitions"
    one = {"evaluators": [longer]}
    for odd in ({"data": ROWS}, {"summary_evaluators": [longer]}, {"num_repetitions": 2}):
        with pytest.raises(InputError, match=wanted):
            evaluate(("old", "new"), **one, **odd)
    with pytest.raises(InputError, match="evaluate: got no data, wanted a file's path"):
        evaluate(short, evaluators=[])  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"evaluate_comparative: experiments: ") as few:
        evaluate((), **one)
    with pytest.raises(InputError, match=r"evaluate_comparative: evaluators: ") as none:
        evaluate(("old", "new"), evaluators=[])
    with pytest.raises(InputError, match=r"evaluate_comparative: repetitions: ") as unknown:
        evaluate(("old", "new"), **one, repetitions=2)
    assert not any("\n" in str(caught.value) for caught in (few, none, unknown))


def test_an_evaluator_of_pairs_is_none_of_answers_and_the_reverse() -> None:
    def ranked(runs: list[RunView], outputs: Outputs) -> list[int]:
        return longer(outputs)

    def right(outputs: dict[str, Any], run: RunView) -> bool:
        return True

    answered("old", "new")
    with pytest.raises(InputError, match=r"evaluator 'ranked': asks for 'runs', wanted any of inputs, outputs, "):
        evaluate(short, ROWS, [ranked])
    with pytest.raises(InputError, match=r"evaluator 'right': asks for 'run', wanted any of inputs, outputs, "):
        evaluate(("old", "new"), evaluators=[right])
    with pytest.raises(InputError, match=r"evaluator 'pairwise_preference'"):
        evaluate(short, ROWS, ["pairwise_preference"])


# A judge that is a model


def shown(request: Request) -> list[str]:
    """The two answers, in the order shown."""
    blocks = re.findall(r"\[BEGIN (\w+)\]\n(.*?)\n\[END \1\]", request["messages"][-1]["content"], flags=re.S)
    return [text for _, text in blocks[-2:]]


def by_length(request: Request) -> Reply:
    first, second = (len(one) for one in shown(request))
    return verdict(0 if first == second else 1 if first > second else 2)


def always_first(request: Request) -> Reply:
    return verdict(1)


def verdict(preference: int) -> Reply:
    return completion(json.dumps({"reasoning": "Because.", "preference": preference}))


def judged_by(endpoint: Endpoint, experiments: list[str], **changes: Any) -> ComparisonSpec:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1, "max_in_flight": 4}
    fields: dict[str, Any] = {
        "experiments": experiments,
        "evaluators": [{"use": "pairwise_preference", "name": "judge", "connection": "mock"}],
        "connections": {"mock": connection},
        "chunk_retry_delay_s": 0.05,
        "max_concurrency": 4,
    }
    return ComparisonSpec.model_validate(fields | changes)


def conclusion(name: str = "%") -> tuple[str, str | None]:
    """Of the only pair of a comparison, by all examples, and why."""
    query = """select conclusion, reason from win_rates
               where comparison like ? and slice = 'all' and not length_controlled"""
    ((found),) = asked(query, name)
    return found


@pytest.mark.parametrize("both_orders", [True, False])
def test_a_fair_judge_decides_and_one_that_always_says_first_does_not(both_orders: bool) -> None:
    old, new = answered("old", "new", n=40)
    with serving(Endpoint(answer=by_length)) as endpoint:
        compare(judged_by(endpoint, [old, new], both_orders=both_orders, name="fair"))
        assert conclusion("fair") == ("better", None)
    assert endpoint.calls == 40 * (1 + both_orders) and endpoint.repeated() == 0
    assert asked("select sum(calls), min(judge_model), max(judge_model) from comparisons") == [
        (endpoint.calls, "mock-1", "mock-1")
    ]
    with serving(Endpoint(answer=always_first)) as endpoint:
        compare(judged_by(endpoint, [new, old], both_orders=both_orders, name="first"))
    found, reason = conclusion("first")
    assert found == "not_enough_evidence"
    assert str(reason).startswith("this judge has a position bias: it ")
    assert "in 100% [" in str(reason)
    biases = asked("select comparison, bias from judge_biases where passed = false order by bias")
    assert biases == [("first", "flip_share")] * both_orders + [("first", "position_preference")]


def test_how_far_a_judge_agrees_with_itself_and_with_another_is_told() -> None:
    counts: dict[str, int] = {}
    lock = threading.Lock()

    def wavers(request: Request) -> Reply:
        """Of three repeats of the same question, the second is a tie."""
        key = json.dumps(request["messages"])
        with lock:
            counts[key] = counts.get(key, 0) + 1
        return verdict(0) if counts[key] == 2 else by_length(request)

    old, new = answered("old", "new")
    with serving(Endpoint(answer=wavers)) as endpoint:
        judge = {"use": "pairwise_preference", "connection": "mock", "args": {"repeats": 3}}
        evaluate((old, new), evaluators=[judge, longer], connections=judged_by(endpoint, [old, new]).connections)
    assert endpoint.calls == 3 * N
    assert asked("select distinct repeats, agreement, winner from comparisons where metric <> 'longer'") == [
        (3, pytest.approx(1 / 3), "right")
    ]
    biases = {
        (metric, bias): message for metric, bias, message in asked("select metric, bias, message from judge_biases")
    }
    assert biases["pairwise_preference", "self_consistency"].startswith("repeated its verdict in 33%")
    assert f"on 100.0% of {N} pairs" in biases["longer", "agreement with pairwise_preference"]


# Going on


def test_with_one_more_experiment_only_its_pairs_are_paid_in_a_new_comparison_too() -> None:
    a, b, c = answered("a", "b", "c")
    with serving(Endpoint(answer=by_length)) as endpoint:
        compare(judged_by(endpoint, [a, b], name="two"))
        assert endpoint.calls == N
        compare(judged_by(endpoint, [c, b, a], name="three"))
        assert endpoint.calls == 3 * N and endpoint.repeated() == 0
        compare(judged_by(endpoint, [a, b, c], name="again"))
        assert endpoint.calls == 3 * N
        compare(judged_by(endpoint, [a, b], name="fresh", use_cache=False))
        assert endpoint.calls == 4 * N
    paid = dict(asked("select name, [calls, calls_cached] from comparison_sets"))
    assert paid == {"two": [N, 0], "three": [2 * N, N], "again": [0, 3 * N], "fresh": [N, 0]}
    board = asked("select experiment, rank from leaderboard where comparison = 'three' and slice = 'all' order by rank")
    assert board == [("c", 1), ("b", 2), ("a", 3)]


def incomplete(spec: ComparisonSpec, resume: str | None = None) -> str:
    """What is said of a comparison that does not come to its end, which stands in its row too."""
    with pytest.raises(IncompleteError) as caught:
        compare(spec, resume)
    ((state, reason, name, identity),) = asked("select state, reason, name, comparison_id from comparison_sets")
    assert (state, str(caught.value)) == ("incomplete", f"comparison {name!r} ({identity}): {reason}")
    assert "\n" not in reason
    return str(reason)


def test_a_judge_that_goes_down_is_left_alone_and_a_resume_asks_only_for_what_lacks() -> None:
    old, new = answered("old", "new")
    down = threading.Event()

    def breaks(request: Request) -> Reply:
        if endpoint.calls > N // 2:
            down.set()
        return error(500, "down") if down.is_set() else by_length(request)

    with serving(Endpoint(answer=breaks)) as endpoint:
        spec = judged_by(
            endpoint, [old, new], both_orders=True, breaker_window=4, breaker_pause_s=600.0, chunk_retries=0
        )
        reason = incomplete(spec)
        assert re.match(
            r"not done: \d+ of 24 by judge \(3 of the last 4 failed, most recently with: HTTP 500: down\)", reason
        )
        assert conclusion()[0] == "not_enough_evidence"
        ((identity, scored),) = asked(
            "select any_value(comparison_id), count(*) filter (status = 'scored') from comparisons"
        )
        assert scored == N // 2 and endpoint.calls < N // 2 + 8
        endpoint.answer, before = by_length, endpoint.calls
        assert compare(spec, resume=identity) == identity
        assert endpoint.calls == before + 2 * N - scored
    assert asked("select state, reason from comparison_sets") == [("completed", None)]
    rows = judgements(identity)
    assert len(rows) == len({row.judgement_id for row in rows}) == 2 * N
    assert {row.status for row in rows} == {"scored"}
    assert conclusion() == ("better", None)


def test_no_more_calls_than_allowed_and_more_where_more_are_allowed() -> None:
    old, new = answered("old", "new")
    with serving(Endpoint(latency_s=0.001, answer=by_length)) as endpoint:
        spec = judged_by(endpoint, [old, new], both_orders=True, run_key="k", max_calls=10)
        reason = incomplete(spec)
        assert reason == "not done: 14 of 24 by judge (the budget is spent (10 of 10 calls))"
        assert incomplete(spec) == reason and endpoint.calls == 10
        incomplete(spec.model_copy(update={"max_calls": 15}))
        assert endpoint.calls == 15
        compare(spec.model_copy(update={"max_calls": 24}))
        assert endpoint.calls == 24 and endpoint.repeated() == 0
    assert asked("select state, calls, max_calls from comparison_sets") == [("completed", 24, 24)]
    assert asked("select distinct status, error_kind from comparisons") == [("scored", None)]


def test_a_budget_of_money_that_cannot_hold_is_refused_before_anything_is_paid() -> None:
    with serving(Endpoint(answer=by_length)) as endpoint:
        with pytest.raises(InputError, match="evaluator 'judge': budget_usd cannot be enforced without the price of"):
            compare(judged_by(endpoint, answered("old", "new"), budget_usd=1.0))
        assert endpoint.calls == 0
    assert asked("select count(*) from comparison_sets") == [(0,)]


def test_a_resume_of_nothing_is_said() -> None:
    with serving(Endpoint(answer=by_length)) as endpoint:
        with pytest.raises(InputError, match="resume: got 'cmp-none', wanted the id of a comparison in "):
            compare(judged_by(endpoint, answered("old", "new")), resume="cmp-none")
        assert endpoint.calls == 0


# As a step of an experiment


def answers_and_judges(request: Request) -> Reply:
    """An endpoint that is asked questions, and judges answers to them."""
    text = request["messages"][-1]["content"]
    return by_length(request) if "[BEGIN" in text else completion(text * (3 if text.startswith("long") else 1))


def with_step(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1, "max_in_flight": 4}
    targets = [
        {"kind": "chat", "connection": "mock", "name": name, "user": f"{name} {{question}}"}
        for name in ("short", "long")
    ]
    fields: dict[str, Any] = {
        "name": "stepped",
        "dataset": {"rows": ROWS},
        "targets": targets,
        "evaluators": ["contains"],
        "compare": {"evaluators": [{"use": "pairwise_preference", "connection": "mock"}], "both_orders": True},
        "connections": {"mock": connection},
        "chunk_retry_delay_s": 0.05,
    }
    return ExperimentSpec.model_validate(fields | changes)


def test_an_experiment_compares_its_targets_as_a_step_and_a_resume_is_the_same_comparison() -> None:
    with serving(Endpoint(answer=answers_and_judges)) as endpoint:
        spec = with_step(endpoint)
        short_one, long_one = run(spec)
        assert endpoint.calls == 4 * N
        assert conclusion() == ("better", None)
        ((group, identity, experiments, name),) = asked(
            "select run_key, comparison_id, experiments, name from comparison_sets"
        )
        assert (experiments, name) == ([short_one, long_one], "stepped")
        run(spec, resume=group)
        assert endpoint.calls == 4 * N
        assert asked("select comparison_id, state from comparison_sets") == [(identity, "completed")]
        run(spec)
        assert endpoint.calls == 4 * N, "all of it is in the ledger"
    assert asked("select count(distinct comparison_id), sum(calls) from comparison_sets") == [(2, 2 * N)]


def test_the_baseline_of_the_experiment_is_that_of_its_comparison() -> None:
    with serving(Endpoint(answer=answers_and_judges)) as endpoint:
        run(with_step(endpoint, baseline="long"))
    assert conclusion() == ("worse", None)
    assert asked("select candidate, baseline from win_rates where not length_controlled") == [
        ("stepped-short", "stepped-long")
    ]


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ({"use": "exact_match"}, "evaluator 'exact_match': "),
        ({"use": "pairwise_preference", "connection": "mock", "args": {"repeats": 0}}, "repeats: got 0"),
        ({"use": "pairwise_preference", "connection": "mock", "name": "contains"}, "an item metric"),
        ({"use": "pairwise_preference", "connection": "none"}, "'none'"),
    ],
    ids=str,
)
def test_what_compares_is_checked_before_anything_is_paid(judge: dict[str, Any], message: str) -> None:
    with serving(Endpoint(answer=answers_and_judges)) as endpoint:
        with pytest.raises(InputError, match=re.escape(message)) as caught:
            run(with_step(endpoint, compare={"evaluators": [judge]}))
        assert endpoint.calls == 0 and "\n" not in str(caught.value)
    assert asked("select (select count(*) from experiments), (select count(*) from comparison_sets)") == [(0, 0)]


def test_what_may_be_spent_is_shared_with_the_step() -> None:
    with serving(Endpoint(latency_s=0.001, answer=answers_and_judges)) as endpoint:
        spec = with_step(endpoint, max_calls=2 * N + 5, run_key="k")
        with pytest.raises(IncompleteError, match=rf"comparison 'stepped' .*: not done: {2 * N - 5} of {2 * N} by "):
            run(spec)
        assert endpoint.calls == 2 * N + 5
        assert asked("select distinct state from experiments") == [("completed",)]
        with pytest.raises(IncompleteError):
            run(spec)
        assert endpoint.calls == 2 * N + 5
        run(spec.model_copy(update={"max_calls": 4 * N}))
    assert endpoint.calls == 4 * N and endpoint.repeated() == 0
    assert asked("select state, calls from comparison_sets") == [("completed", 2 * N)]


# Killed

MANY, IN_FLIGHT = 100, 8


def write_spec(folder: Path, base_url: str, experiments: list[str]) -> Path:
    spec = {
        "name": "killed",
        "experiments": experiments,
        "evaluators": [{"use": "pairwise_preference", "connection": "mock"}, "judges_of_pairs:by_text"],
        "connections": {"mock": {"kind": "endpoint", "base_url": base_url, "model": "m", "max_in_flight": IN_FLIGHT}},
        "both_orders": True,
        "max_concurrency": IN_FLIGHT,
        "chunk_size": 20,
    }
    path = folder / "comparison.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.mark.slow
def test_killed_twice_and_resumed_it_asks_again_only_for_what_was_in_flight(
    tmp_path: Path, prefect_environment: dict[str, str]
) -> None:
    old, new = answered("old", "new", n=MANY)
    total, moments = 2 * MANY, (40, 130)
    with serving(Endpoint(latency_s=0.03, answer=by_length)) as endpoint:
        spec = write_spec(tmp_path, endpoint.base_url, [old, new])
        process = started(tmp_path, prefect_environment, "compare", str(spec))
        for moment in moments:
            deadline = time.monotonic() + 60
            while endpoint.calls < moment:
                assert process.poll() is None and time.monotonic() < deadline, "ended before it could be killed"
                time.sleep(0.002)
            process.kill()
            process.communicate()
            process = started(tmp_path, prefect_environment, "resume", "killed")
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output.decode()
    print(f"killed at calls {moments}: {endpoint.calls} calls for {total}, {endpoint.repeated()} of them again")
    assert endpoint.repeated() <= len(moments) * IN_FLIGHT
    assert endpoint.calls - endpoint.repeated() == total
    ((identity, state, reason),) = asked("select comparison_id, state, reason from comparison_sets")
    assert (state, reason) == ("completed", None)
    rows = judgements(identity)
    assert len(rows) == len({row.judgement_id for row in rows}) == 2 * total
    of = {(row.metric, row.example_id, row.shown_first) for row in rows}
    assert len(of) == 2 * total and {row.status for row in rows} == {"scored"}
    assert {row.winner for row in rows if row.metric == "pairwise_preference"} == {"right"}
    assert not list((tmp_path / "spool").rglob("*.jsonl"))


def started(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    """The command in a process of its own, on this test's store."""
    command = [str(Path(sys.executable).with_name("evalflows")), *arguments]
    own = os.environ | environment | {"PYTHONPATH": str(Path(__file__).parent.parent / "support")}
    return subprocess.Popen(command, cwd=folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


# Keys

KEY = f"sk-test-{random.Random(29).randbytes(24).hex()}"
MARK = "as-quoted-by-the-provider"


def test_a_key_goes_to_whom_it_is_for_and_is_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Errors quote it, answers quote it, and so does a judge with a client of its own."""
    monkeypatch.setenv("COMPARING_KEY", KEY)

    def quotes(request: Request) -> Reply:
        if "q01" in json.dumps(request):
            return error(401, f"Incorrect API key provided: {KEY}. {MARK}")
        return completion(json.dumps({"reasoning": f"{MARK} {KEY}", "preference": 1}))

    def own(outputs: Outputs) -> dict[str, Any]:
        client = wrap(openai.OpenAI(base_url=endpoint.base_url, api_key=os.environ["COMPARING_KEY"], max_retries=0))
        told = client.chat.completions.create(model="m", messages=[{"role": "user", "content": str(outputs)}])
        return {
            "key": "own",
            "winner": "A",
            "comment": told.choices[0].message.content,
            "metadata": {"said": str(told)},
        }

    with serving(Endpoint(answer=quotes)) as endpoint:
        spec = judged_by(endpoint, answered("old", "new"), both_orders=True)
        connection = spec.connections["mock"].model_dump() | {"api_key_env": "COMPARING_KEY"}
        judges: list[Any] = [spec.evaluators[0], own]
        said = ""
        try:
            evaluate(tuple(spec.experiments), evaluators=judges, connections={"mock": connection}, chunk_retries=0)
        except IncompleteError as fault:
            said = str(fault)
    assert f"bearer {KEY}" in endpoint.keys, "the key was sent"
    written = capfd.readouterr()
    kept = "".join(_texts(tmp_path))
    assert MARK in kept, "what was quoted is kept"
    for piece in (KEY[8:24], KEY[24:40], KEY[-16:]):
        assert piece not in kept + said + written.out + written.err


def _texts(root: Path) -> Iterator[str]:
    for path in root.rglob("*"):
        if path.suffix == ".parquet":
            yield str(pyarrow.parquet.read_table(path, partitioning=None).to_pylist())
        elif path.is_file():
            yield path.read_bytes().decode(errors="replace")
