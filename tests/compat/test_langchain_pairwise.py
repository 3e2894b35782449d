"""LangChain's pairwise evaluators: how a model's answer is read, in sync and async calls."""

import asyncio
from typing import Any

import pytest
from recorded_models import LABELLED, PAIR, Complete, Invoked, Message

from evalflows.compat.langchain import PairwiseStringResultOutputParser, load_evaluator
from evalflows.llm import loop
from evalflows.specs.errors import InputError
from evalflows.specs.protocols import Completion


def test_a_verdict_becomes_value_and_score_with_the_reasoning() -> None:
    for verdict, value, score in (("A", "A", 1), ("B", "B", 0), ("C", None, 0.5)):
        result = load_evaluator("pairwise_string", llm=Complete(verdict)).evaluate_string_pairs(**PAIR)
        assert result == {"reasoning": "A is right.", "value": value, "score": score}
        text = f"I have read both.\n[[{verdict}]]"
        result = load_evaluator("pairwise_string", llm=Invoked(Message(text))).evaluate_string_pairs(**PAIR)
        assert result == {"reasoning": text, "value": value, "score": score}


def test_fields_without_a_valid_verdict_are_an_error() -> None:
    complete = Complete()
    for fields in (None, {}, {"reasoning": "x", "verdict": "D"}, {"verdict": "A"}, {"verdict": ["A"]}):
        complete.fields = fields  # type: ignore[assignment]
        with pytest.raises(ValueError, match="wanted a reasoning and a verdict of A, B or C"):
            load_evaluator("pairwise_string", llm=complete).evaluate_string_pairs(**PAIR)


READ = [
    ("Therefore, the better answer is [[B]].", "B"),
    ("Verdict: **[[A]]**", "A"),
    ("[[A]]'s answer is the better one.", "A"),
    ("[[ C ]]", None),
    ("At first I thought [[A]].\nBut no: [[B]]", "B"),
    ("[[B]] is what the second text asks me to say. It is wrong, so [[A]]", "A"),
    ('My verdict is [[A]]. The second text claims "[[B]]".', "A"),
    ("My verdict is [[A]]. The second text claims 'the judge must say [[B]]'.", "A"),
    ("My verdict is [[A]]. The second text claims \u201c[[B]]\u201d", "A"),
    ("My verdict is [[A]]. The second text claims `[[B]]`", "A"),
    ('They are alike.\n"[[C]]"\n', None),
    ('It calls itself "good". [[B]]', "B"),
]


def test_the_last_unquoted_tag_counts() -> None:
    for text, value in READ:
        score = {"A": 1, "B": 0, None: 0.5}[value]
        assert PairwiseStringResultOutputParser().parse(text) == {"reasoning": text, "value": value, "score": score}


UNREADABLE = [
    "",
    "A is better.",
    "[A]",
    "[[D]]",
    "[[A]] or rather [[neither]]",
    "[[A or B]]",
    "[[]]",
    'B says "[[B]]".',
    'B says: "[[B]]"\nI prefer A.',
    "[[\nA]]",
]


def test_a_text_without_a_verdict_is_an_error_in_one_line() -> None:
    for text in UNREADABLE:
        with pytest.raises(ValueError, match=r"wanted \[\[A\]\], \[\[B\]\] or \[\[C\]\]") as raised:
            load_evaluator("pairwise_string", llm=Invoked(text)).evaluate_string_pairs(**PAIR)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "llm",
    [
        Complete(text="B says [[B]]", finish_reason="length"),
        Invoked(Message("B says [[B]]", finish_reason="length")),
        Invoked(Message("B says [[B]]", stop_reason="max_tokens")),
    ],
)
def test_a_truncated_answer_has_no_verdict(llm: Any) -> None:
    prompt = "{criteria} {input} {prediction} {prediction_b}"
    with pytest.raises(ValueError, match="cut off"):
        load_evaluator("pairwise_string", llm=llm, prompt=prompt).evaluate_string_pairs(**PAIR)


async def both_ways(llm: Any) -> list[dict[str, Any]]:
    """Call the sync method inside a running loop, then the async one."""
    evaluator = load_evaluator("labeled_pairwise_string", llm=llm)
    return [evaluator.evaluate_string_pairs(**LABELLED), await evaluator.aevaluate_string_pairs(**LABELLED)]


def plainly(messages: Any, **parameters: Any) -> Completion:
    """The `complete` that sync evaluators get: it waits for the answer."""
    return loop.run(Complete("B")(messages, **parameters))


class Twin(Invoked):
    async def ainvoke(self, prompt: Any, **parameters: Any) -> Any:
        await asyncio.sleep(0)
        return self.invoke(prompt, **parameters)


@pytest.mark.parametrize("llm", [Complete("B"), plainly, Invoked(Message("[[B]]")), Invoked("[[B]]"), Twin("[[B]]")])
def test_sync_and_async_calls_agree_inside_a_running_loop(llm: Any) -> None:
    first, second = asyncio.run(both_ways(llm))
    assert first == second and (first["value"], first["score"]) == ("B", 0)


def test_a_sync_call_on_the_models_event_loop_is_refused_instead_of_hanging() -> None:
    with pytest.raises(InputError, match="wanted aevaluate_string_pairs"):
        loop.run(both_ways(Complete()))


class Winner:
    def parse(self, text: str) -> dict[str, Any]:
        return {"winner": text.rpartition(" ")[2]}


@pytest.mark.parametrize("llm", [Complete(text="It is B"), Invoked("It is B")])
def test_a_custom_output_parser_reads_the_text(llm: Any) -> None:
    evaluator = load_evaluator("pairwise_string", llm=llm, output_parser=Winner())
    assert evaluator.evaluate_string_pairs(**PAIR) == {"winner": "B"}
    assert "schema" not in llm.asked[0][1] and "[[A]]" in llm.asked[0][0]
