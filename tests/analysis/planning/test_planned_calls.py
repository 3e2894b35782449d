"""The planned model calls of targets and judges: how many, how large, at what cost."""

import math
from pathlib import Path

import pytest
from planned import START, call_row, chat_spec, dataset_rows, experiment_row, score_row

from evalflows.analysis.plan import sentences_of
from evalflows.api.planning import plan
from evalflows.engine.prepare import prepare
from evalflows.engine.spec_targets import target_version
from evalflows.llm.ledger import call_key
from evalflows.specs.metrics import MetricSpec
from evalflows.store.ingest import load_dataset
from evalflows.store.records import JudgementRow, OutputRow
from evalflows.store.store import Store


def test_a_chat_target_is_called_once_per_example_and_repetition() -> None:
    made = plan(chat_spec(repetitions=3))
    assert [(line.caller, line.calls, line.in_ledger) for line in made.calls] == [("old", 120, 0), ("new", 120, 0)]
    old, new = made.calls
    assert old.size.basis == "upper estimate" and old.size.tokens_out == 20
    assert old.usd == pytest.approx(120 * (math.ceil(old.size.tokens_in or 0) * 100 + 20 * 1000) / 1e6)
    assert (new.usd, made.total.usd, made.total.unpriced) == (None, None, ("new",))
    sentences = sentences_of(made)
    assert "this run makes 240 model calls: cost unknown" in sentences
    assert "the cost of new is unknown: no token counts or no price" in sentences


def test_calls_in_the_ledger_are_not_paid_again_unless_the_cache_is_off() -> None:
    requests = [
        {"model": "m", "messages": [{"role": "user", "content": f"q{i}?"}], "max_tokens": 20} for i in range(15)
    ]
    keys = [call_key("http://127.0.0.1:9/v1", request, 0) for request in requests]
    Store().publish("calls", "exp-x", [call_row("exp-x", call_key=key) for key in keys])
    old = plan(chat_spec()).calls[0]
    assert (old.calls, old.in_ledger) == (40, 15)
    assert old.usd == pytest.approx(25 * (30 * 100 + 7 * 1000) / 1e6), "as other targets' calls to this model"
    assert old.size.basis == "15 earlier calls of other targets to this model"
    assert plan(chat_spec(use_cache=False)).calls[0].in_ledger == 0


def test_equal_requests_of_two_targets_are_paid_once() -> None:
    chat = {"kind": "chat", "user": "{question}", "connection": "mine"}
    same = [chat | {"name": "old"}, chat | {"name": "new"}]
    assert [line.in_ledger for line in plan(chat_spec(targets=same)).calls] == [0, 40]
    assert [line.in_ledger for line in plan(chat_spec(targets=same, use_cache=False)).calls] == [0, 0]


def test_call_size_prefers_calls_of_the_same_target_version() -> None:
    spec = chat_spec(second="mine")
    version = target_version(spec.targets[0], spec.connections)
    store = Store()
    snapshot = load_dataset(store, spec.dataset).keep(store)
    store.publish(
        "experiments", "exp-x", [experiment_row("exp-x", "old", snapshot, (40, 1), spec, START, target_version=version)]
    )
    store.publish("calls", "exp-x", [call_row("exp-x", call_key="a", tokens_in=100, tokens_out=9)])
    store.publish("calls", "exp-y", [call_row("exp-y", call_key="b", tokens_in=200, tokens_out=5)])
    old, new = (line.size for line in plan(spec).calls)
    assert (old.tokens_in, old.tokens_out, old.basis) == (100, 9, "1 earlier calls of this target")
    assert (new.tokens_in, new.tokens_out, new.basis) == (150, 7, "2 earlier calls of other targets to this model")


def test_calls_of_a_python_target_come_from_earlier_runs_or_are_unknown() -> None:
    own = {"kind": "python", "name": "own", "function": "judges:upper"}
    spec = chat_spec(targets=[own], repetitions=2)
    made = plan(spec)
    assert (made.calls[0].calls, made.total.unknown) == (None, ("own",))
    assert sentences_of(made)[0] == "this run makes no known model calls", "no cost either"
    assert any("the calls of own are unknown and not counted" in sentence for sentence in sentences_of(made))
    version, store = target_version(spec.targets[0], spec.connections), Store()
    snapshot = load_dataset(store, spec.dataset).keep(store)
    store.publish(
        "experiments", "exp-x", [experiment_row("exp-x", "own", snapshot, (4, 1), spec, START, target_version=version)]
    )
    outputs = [
        OutputRow(
            run_id=f"r{i}",
            experiment_id="exp-x",
            example_id=f"q{i:05}",
            repetition=0,
            status="ok",
            calls=2,
            calls_cached=1,
        )
        for i in range(4)
    ]
    store.publish("outputs", "exp-x", outputs)
    store.publish("calls", "exp-x", [call_row("exp-x")])
    (line,) = plan(spec).calls
    assert line.calls == 3 * 80
    assert line.usd == pytest.approx(240 * 0.01)


def test_judge_calls_count_answers_repeats_samples_controls_and_tiers() -> None:
    """Two targets, 40 examples, 2 repetitions: 160 answers; 10 controls are 30 judgements; cascades at most."""
    asks = {"connection": "mine"}
    evaluators = [
        {"use": "correctness", "controls": 10, **asks},
        {"use": "rubric", "args": {"rubric": "good", "repeats": 3}, "sample_rate": 0.25, **asks},
        {"use": "judges:says_correct", **asks},
        {
            "name": "right",
            "use": "cascade",
            "tiers": ["exact_match", {"use": "criteria", **asks}, {"use": "instruction_following", **asks}],
            "controls": 5,
        },
        "contains",
    ]
    made = plan(chat_spec(evaluators=evaluators, repetitions=2))
    counted = {line.caller: (line.kind, line.calls, line.at_most) for line in made.calls[2:]}
    assert counted == {
        "correctness": ("judge", 160, True),
        "correctness: controls": ("controls", 30, True),
        "rubric": ("judge", 3 * 40, True),
        "says_correct": ("judge", 160, True),
        "right: criteria": ("judge", 160, True),
        "right: instruction_following": ("judge", 160, True),
        "right: controls": ("controls", 15, True),
    }
    own = next(line for line in made.calls if line.caller == "says_correct")
    assert (own.size.basis, own.note) == ("unknown", "assumed: one call per judgement")


def test_pairwise_calls_count_pairs_and_orders() -> None:
    chat = {"kind": "chat", "user": "{question}", "connection": "mine"}
    targets = [chat | {"name": name} for name in ("a", "b", "c")]
    judge = {"use": "pairwise_preference", "connection": "mine"}
    for compare, calls in (({}, 3 * 80), ({"both_orders": True}, 6 * 80), ({"pairs": "baseline"}, 2 * 80)):
        made = plan(chat_spec(targets=targets, repetitions=2, compare={"evaluators": judge, **compare}))
        assert (made.calls[-1].kind, made.calls[-1].calls) == ("pairwise", calls)
    of_all = {"evaluators": {"use": "judges_of_pairs:best_of", "connection": "mine"}, "both_orders": True}
    made = plan(chat_spec(targets=targets, repetitions=2, compare=of_all))
    assert (made.calls[-1].kind, made.calls[-1].calls) == ("pairwise", 2 * 80), "of all candidates at once"


def test_a_judge_that_needs_a_reference_is_not_called_without_one() -> None:
    half = [
        row if i % 2 else {k: v for k, v in row.items() if k != "outputs"} for i, row in enumerate(dataset_rows(40))
    ]
    made = plan(chat_spec(dataset={"rows": half}, evaluators=[{"use": "correctness", "connection": "mine"}]))
    assert made.calls[-1].calls == 2 * 20


def test_calls_per_judgement_of_a_users_judge_come_from_its_history() -> None:
    spec = chat_spec(evaluators=[{"use": "judges:says_correct", "connection": "mine"}])
    version = prepare(spec).by_name["says_correct"].version
    score = score_row("exp-x", "q00000", 0, "says_correct", 1.0, True)
    given = {name: getattr(score, name) for name in score.__slots__}
    Store().publish("judgements", "exp-x", [JudgementRow(**given | {"evaluator_version": version, "calls": 2})])
    made = plan(spec).calls[-1]
    assert (made.calls, made.note) == (160, "2 calls per judgement, as in 1 earlier judgements")


def test_calls_between_tools_are_not_counted_and_the_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = "def __init__(self, state=None):\n        pass\n    def state(self):\n        return {}\n"
    methods += "    def look_up(self, order: str) -> str:\n        'Find it.'\n        return order\n"
    (tmp_path / "planned_desk.py").write_text(f"class Desk:\n    {methods}")
    monkeypatch.syspath_prepend(tmp_path)
    agent = {"kind": "chat", "connection": "mine"}
    talk = {"kind": "conversation", "name": "agent", "target": agent, "world": "planned_desk:Desk", "max_turns": 3}
    talk["user"] = {"kind": "scripted", "messages": "inputs.question"}
    rows = [row | {"inputs": {"question": ["a", "b"]}} for row in dataset_rows(40)]
    spec = chat_spec(dataset={"rows": rows}, targets=[talk], evaluators=["contains"])
    spec.metrics["contains"] = MetricSpec(pass_k=[1, 2])
    made = plan(spec)
    (line,) = made.calls
    assert (line.calls, line.at_most, made.total.at_most, made.comparisons) == (80, False, False, 5)
    said = sentences_of(made)
    more = "those between the tools of agent (at most 19 more a turn)"
    assert said[0].startswith(f"this run makes 80 model calls, not counting {more}: ")
    assert any(sentence.startswith("verdicts are adjusted for 5 comparisons (Holm)") for sentence in said)
    (once,) = plan(chat_spec(dataset={"rows": rows}, targets=[talk | {"max_steps": 1}])).calls
    assert once.at_most and once.uncounted is None
