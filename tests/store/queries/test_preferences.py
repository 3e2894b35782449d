"""Preferences for training: which pairs are some, what of them is kept, and what is left out and counted."""

from typing import Any

import pytest
from compared import Compared

from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.queries.preferences import LEFT_OUT, Preferences, preferences_of


def found(compared: Compared, metric: str | None = None) -> Preferences:
    compared.write()
    return preferences_of(compared.store, compared.comparison_id, metric)


def counts(preferences: Preferences) -> dict[str, int]:
    """What was left out, without the zeros."""
    assert [*preferences.left_out] == [*LEFT_OUT]
    return {why: count for why, count in preferences.left_out.items() if count}


@pytest.mark.parametrize(("said", "chosen", "rejected"), [("left", "old", "new"), ("right", "new", "old")])
def test_the_better_answer_is_chosen(store: Store, said: str, chosen: str, rejected: str) -> None:
    compared = Compared(store, both_orders=True)
    compared.judge("q0", said, said)
    preferences = found(compared)
    assert preferences.rows == [
        {
            "prompt": "q0?",
            "chosen": f"{chosen} on q0",
            "rejected": f"{rejected} on q0",
            "example_id": "q0",
            "metric": "preference",
            "chosen_experiment": chosen,
            "rejected_experiment": rejected,
        }
    ]
    assert (counts(preferences), preferences.in_words) == ({}, "1 of 1 pairs by preference")


MESSAGES = [{"role": "user", "content": "How?"}, {"role": "assistant", "content": "So."}]


@pytest.mark.parametrize(
    ("inputs", "prompt"),
    [
        ({"question": 'How?\n"é"'}, 'How?\n"é"'),
        ({"messages": MESSAGES}, MESSAGES),
        ({"messages": "How?"}, "How?"),
        ({"messages": MESSAGES, "style": "short"}, None),
        ({"turns": MESSAGES}, None),
        ({"question": "How?", "context": "é"}, '{"context":"é","question":"How?"}'),
        ({"number": 7}, '{"number":7}'),
    ],
)
def test_a_prompt_is_a_text_or_a_conversation(store: Store, inputs: dict[str, Any], prompt: Any) -> None:
    compared = Compared(store)
    compared.inputs["q0"] = inputs
    compared.judge("q0", "left")
    (row,) = found(compared).rows
    if prompt is None:
        assert isinstance(row["prompt"], str) and row["prompt"].startswith('{"') and '"content":"How?"' in row["prompt"]
    else:
        assert row["prompt"] == prompt


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({"answer": "So."}, "So."),
        ({"output": ["a", "b"]}, '{"output":["a","b"]}'),
        ({"why": "é", "answer": "So."}, '{"answer":"So.","why":"é"}'),
        ({}, "{}"),
    ],
)
def test_an_answer_is_the_text_of_its_only_field_or_json(store: Store, outputs: dict[str, Any], text: str) -> None:
    compared = Compared(store)
    compared.answer(1, "q0", outputs)
    compared.judge("q0", "right")
    (row,) = found(compared).rows
    assert (row["chosen"], row["rejected"]) == (text, "old on q0")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (("tie", "tie"), "ties"),
        (("left", "right"), "flipped"),
        (("tie", "left"), "half ties"),
        (("left", "failed"), "missing"),
        (("left", None), "missing"),
        (("not_attempted", "not_attempted"), "missing"),
        (("left_out", "left_out"), "failed outputs"),
        (("left unasked", "left unasked"), "failed outputs"),
        (("tie unasked", "tie unasked"), "failed outputs"),
        (("not_applicable", "left"), "not applicable"),
    ],
)
def test_what_is_no_preference_is_left_out_and_counted(store: Store, said: tuple[str | None, ...], why: str) -> None:
    compared = Compared(store, examples=["q0", "q1"], both_orders=True)
    compared.judge("q0", *said)
    compared.judge("q1", "left", "left")
    preferences = found(compared)
    assert [row["example_id"] for row in preferences.rows] == ["q1"]
    assert counts(preferences) == {why: 1}
    assert preferences.in_words == f"1 of 2 pairs by preference; left out: 1 {why}"


def test_an_answer_that_is_not_there_is_never_rejected(store: Store) -> None:
    compared = Compared(store)
    compared.answer(0, "q0", None)
    compared.judge("q0", "right")  # whatever it was that judged
    preferences = found(compared)
    assert (preferences.rows, counts(preferences)) == ([], {"failed outputs": 1})


@pytest.mark.parametrize("other", ["old on q0", {"answer": "old on q0"}])
def test_the_same_text_on_both_sides_teaches_nothing(store: Store, other: Any) -> None:
    compared = Compared(store)
    compared.answer(1, "q0", other)
    compared.judge("q0", "left")
    preferences = found(compared)
    assert (preferences.rows, counts(preferences)) == ([], {"same text": 1})


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
    compared = Compared(store)
    compared.judge("q0", "left", metric="tone")
    compared.judge("q0", "right", metric="preference")
    compared.write()
    assert [row["chosen_experiment"] for row in preferences_of(store, "cmp-1", "tone").rows] == ["old"]
    assert [row["chosen_experiment"] for row in preferences_of(store, "cmp-1", "preference").rows] == ["new"]
    with pytest.raises(InputError) as caught:
        preferences_of(store, "cmp-1")
    assert str(caught.value) == "comparison 'cmp-1': got 2 metrics, wanted one of: preference, tone"


def test_a_metric_that_there_is_not_is_an_input_error(store: Store) -> None:
    compared = Compared(store)
    compared.judge("q0", "left")
    with pytest.raises(InputError) as caught:
        found(compared, "tone")
    assert str(caught.value) == "comparison 'cmp-1': got the metric 'tone', wanted one of: preference"


def test_a_comparison_without_judgements_is_an_input_error(store: Store) -> None:
    with pytest.raises(InputError) as caught:
        found(Compared(store))
    assert str(caught.value) == "comparison 'cmp-1': got no judgements yet, wanted at least one"


def test_other_comparisons_are_left_alone(store: Store) -> None:
    for comparison, said in (("cmp-1", "left"), ("cmp-2", "right")):
        compared = Compared(store, comparison_id=comparison)
        compared.judge("q0", said, metric=f"metric of {comparison}")
        compared.write()
    preferences = preferences_of(store, "cmp-2")
    assert (preferences.metric, preferences.comparison_id) == ("metric of cmp-2", "cmp-2")
    assert [row["chosen_experiment"] for row in preferences.rows] == ["new"]


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "open"])
def test_a_comparison_under_way_has_the_preferences_so_far(store: Store, sealed: bool) -> None:
    compared = Compared(store, examples=["q0", "q1"], both_orders=True)
    compared.judge("q0", "left", "left")
    compared.judge("q1", "left", None)
    compared.write(sealed=sealed)
    preferences = preferences_of(store, "cmp-1")
    assert (len(preferences.rows), counts(preferences)) == (1, {"missing": 1})
