"""Preferences for training: which pairs are some, what of them is kept, and what is left out and counted."""

from collections import Counter
from typing import Any

import pytest
from compared import Compared

from evalflows.specs.errors import InputError
from evalflows.store.queries.labels import LEFT_OUT, Preferences, preferences_of
from evalflows.store.store import Store


def found(compared: Compared, metric: str | None = None) -> Preferences:
    compared.write()
    return preferences_of(compared.store, compared.comparison_id, metric)


def counts(preferences: Preferences) -> dict[str, int]:
    """What was left out, without the zeros."""
    assert [*preferences.left_out] == [*LEFT_OUT]
    return {why: count for why, count in preferences.left_out.items() if count}


def test_the_better_answer_is_chosen(store: Store) -> None:
    compared = Compared(store, examples=["q0", "q1"], both_orders=True)
    compared.judge("q0", "left", "left")
    compared.judge("q1", "right", "right")
    preferences = found(compared)
    first, second = preferences.rows
    answers = {"prompt": "q0?", "chosen": "old on q0", "rejected": "new on q0"}
    of = {"example_id": "q0", "metric": "preference", "chosen_experiment": "old", "rejected_experiment": "new"}
    assert first == answers | of
    assert (second["chosen"], second["rejected_experiment"]) == ("new on q1", "old")
    assert (counts(preferences), preferences.in_words) == ({}, "2 of 2 pairs by preference")


MESSAGES = [{"role": "user", "content": "How?"}, {"role": "assistant", "content": "So."}]


PROMPTS: list[tuple[dict[str, Any], Any]] = [
    ({"question": 'How?\n"é"'}, 'How?\n"é"'),
    ({"messages": MESSAGES}, MESSAGES),
    ({"messages": "How?"}, "How?"),
    ({"messages": MESSAGES, "style": "short"}, None),
    ({"turns": MESSAGES}, None),
    ({"question": "How?", "context": "é"}, '{"context":"é","question":"How?"}'),
    ({"number": 7}, '{"number":7}'),
]
TEXTS: list[tuple[dict[str, Any], str]] = [
    ({"answer": "So."}, "So."),
    ({"output": ["a", "b"]}, '{"output":["a","b"]}'),
    ({"why": "é", "answer": "So."}, '{"answer":"So.","why":"é"}'),
    ({}, "{}"),
]


def test_prompts_and_answers_are_texts_conversations_or_json(store: Store) -> None:
    compared = Compared(store, examples=[f"q{place}" for place in range(len(PROMPTS))])
    for example, (inputs, _) in zip(compared.examples, PROMPTS, strict=True):
        compared.inputs[example] = inputs
        compared.judge(example, "right")
    for example, (outputs, _) in zip(compared.examples, TEXTS, strict=False):
        compared.answer(1, example, outputs)
    rows = found(compared).rows
    for row, (_, prompt) in zip(rows, PROMPTS, strict=True):
        if prompt is None:
            assert row["prompt"].startswith('{"') and '"content":"How?"' in row["prompt"]
        else:
            assert row["prompt"] == prompt
    assert [row["chosen"] for row in rows[: len(TEXTS)]] == [text for _, text in TEXTS]


LEFT = {
    ("tie", "tie"): "ties",
    ("left", "right"): "flipped",
    ("tie", "left"): "half ties",
    ("left", "failed"): "missing",
    ("left", None): "missing",
    ("not_attempted", "not_attempted"): "missing",
    ("left_out", "left_out"): "failed outputs",
    ("left unasked", "left unasked"): "failed outputs",
    ("tie unasked", "tie unasked"): "failed outputs",
    ("not_applicable", "left"): "not applicable",
}


def test_what_is_no_preference_is_left_out_and_counted(store: Store) -> None:
    compared = Compared(store, examples=[f"q{place}" for place in range(len(LEFT) + 1)], both_orders=True)
    for example, said in zip(compared.examples, [("left", "left"), *LEFT], strict=True):
        compared.judge(example, *said)
    preferences = found(compared)
    assert [row["example_id"] for row in preferences.rows] == ["q0"]
    assert counts(preferences) == dict(Counter(LEFT.values()))
    assert preferences.in_words.startswith("1 of 11 pairs by preference; left out: ")


def test_an_answer_that_is_not_there_and_one_that_is_the_same_teach_nothing(store: Store) -> None:
    compared = Compared(store, examples=["q0", "q1", "q2"])
    compared.answer(0, "q0", None)
    compared.judge("q0", "right")  # whatever it was that judged
    compared.answer(1, "q1", "old on q1")
    compared.answer(1, "q2", {"answer": "old on q2"})
    for example in ("q1", "q2"):
        compared.judge(example, "left")
    preferences = found(compared)
    assert (preferences.rows, counts(preferences)) == ([], {"failed outputs": 1, "same text": 2})


def test_every_pair_and_repetition_is_one_in_the_order_of_the_examples(store: Store) -> None:
    compared = Compared(store, ["a", "b", "c"], ["q1", "q0"], repetitions=2)
    for pair in ((1, 2), (0, 2), (0, 1)):
        for example in ("q0", "q1"):
            for repetition in (1, 0):
                compared.answer(pair[0], example, f"{pair[0]} of {repetition}", repetition=repetition)
                compared.judge(example, "left", pair=pair, repetition=repetition)
    rows = found(compared).rows
    order = [(row["example_id"], row["chosen"], row["rejected_experiment"]) for row in rows]
    one = [("0 of 0", "b"), ("0 of 0", "c"), ("1 of 0", "c"), ("0 of 1", "b"), ("0 of 1", "c"), ("1 of 1", "c")]
    assert order == [(example, *each) for example in ("q1", "q0") for each in one]


def test_of_several_metrics_one_is_named(store: Store) -> None:
    other = Compared(store, comparison_id="cmp-2")
    with pytest.raises(InputError, match="'cmp-2': got no judgements yet"):
        found(other)
    other.judge("q0", "right", metric="of another")
    other.write()
    compared = Compared(store)
    compared.judge("q0", "left", metric="tone")
    compared.judge("q0", "right", metric="preference")
    compared.write()
    assert [row["chosen_experiment"] for row in preferences_of(store, "cmp-1", "tone").rows] == ["old"]
    assert [row["chosen_experiment"] for row in preferences_of(store, "cmp-1", "preference").rows] == ["new"]
    with pytest.raises(InputError) as caught:
        preferences_of(store, "cmp-1")
    assert str(caught.value) == "comparison 'cmp-1': got 2 metrics, wanted one of: preference, tone"
    with pytest.raises(InputError, match="got the metric 'of another', wanted one of: preference, tone"):
        preferences_of(store, "cmp-1", "of another")
