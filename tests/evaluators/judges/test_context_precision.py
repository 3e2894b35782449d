"""context_precision: the average precision of a ranked list, from one verdict for each context."""

import asyncio
from itertools import permutations
from typing import Any

import jsonschema
import pytest

from evalflows.evaluators.judges.context_precision import average_precision, context_precision
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Completion

USEFUL, USELESS = "The invoice is due within thirty days.", "Our office has a garden."
REFERENCE = {"answer": "Within thirty days."}


@pytest.fixture
def judge(reader: Any, reading: Any) -> Any:
    """A context is useful that has the words of the reference."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        wanted = reading.words(sections["Reference answer, which is right"])
        useful = [wanted <= reading.words(text) for text in reading.contexts(sections)]
        return {
            "verdicts": [
                {"number": number, "reasoning": "", "useful": is_useful}
                for number, is_useful in enumerate(useful, start=1)
            ]
        }

    return reader(judge)


def judged(judge: Any, context: Any, reference: dict[str, Any] | None = REFERENCE, **settings: Any) -> Score | None:
    inputs = {"question": "When is the invoice due?", "context": context}
    return asyncio.run(context_precision(inputs, {"output": "Soon."}, reference, {}, judge, **settings))


@pytest.mark.parametrize(
    ("useful", "precision"),
    [
        ([True], 1.0),
        ([False], 0.0),
        ([False, False, True], 1 / 3),
        ([True, False, True], (1 / 1 + 2 / 3) / 2),  # 5/6
        ([False, True, True], (1 / 2 + 2 / 3) / 2),  # 7/12
        ([True, False, False, True, True], (1 / 1 + 2 / 4 + 3 / 5) / 3),  # 7/10
        ([], 0.0),
    ],
)
def test_average_precision_by_hand(useful: list[bool], precision: float) -> None:
    assert average_precision(useful) == pytest.approx(precision)


def test_the_order_counts_and_an_empty_context_keeps_its_rank(judge: Any) -> None:
    scores = {order: judged(judge, list(order)) for order in permutations([USEFUL, USELESS])}
    first, last = scores[(USEFUL, USELESS)], scores[(USELESS, USEFUL)]
    assert first and last
    assert (first.value, first.comment) == (1.0, "useful: 1 of 2")
    assert (last.value, last.comment) == (0.5, "useful: 2 of 2")
    score = judged(judge, ["", USEFUL])
    assert score and score.value == 0.5
    assert judged(judge, []) == Score(value=0.0, comment="there is no context")
    assert len(judge.prompts) == 3, "of which nothing was asked"


@pytest.mark.parametrize("numbers", [[1, 2, 3], [1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4], [2, 3, 4, 5, 6], []])
def test_the_schema_wants_a_verdict_for_each_context_so_that_another_count_is_asked_again(
    reader: Any, numbers: list[int]
) -> None:
    verdicts = {"verdicts": [{"number": number, "reasoning": "", "useful": True} for number in numbers]}
    with pytest.raises(jsonschema.ValidationError):
        judged(reader(lambda _: verdicts), [USEFUL] * 5)


@pytest.mark.parametrize("count", [4, 6])
def test_verdicts_are_never_padded_or_cut_where_nobody_checks_the_schema(count: int) -> None:
    verdicts = [{"number": number, "useful": True} for number in range(1, count + 1)]

    async def careless(messages: Any, **parameters: Any) -> Completion:
        return Completion(text="", parsed={"verdicts": verdicts}, model="m", call_id="c")

    with pytest.raises(ValueError, match=f"context_precision: got {count} verdicts, wanted 5"):
        judged(careless, [USEFUL] * 5)


def test_verdicts_go_by_their_numbers_and_two_on_one_context_are_an_error(reader: Any) -> None:
    verdicts = [{"number": 2, "reasoning": "", "useful": False}, {"number": 1, "reasoning": "", "useful": True}]
    score = judged(reader(lambda _: {"verdicts": verdicts}), [USEFUL, USELESS])
    assert score and score.comment == "useful: 1 of 2" and score.value == 1.0
    verdicts = {"verdicts": [{"number": number, "reasoning": "", "useful": True} for number in (1, 2, 3, 4, 4)]}
    says = "context_precision: got verdicts on the contexts 1, 2, 3, 4, 4, wanted each of 1 to 5 once"
    with pytest.raises(ValueError, match=says):
        judged(reader(lambda _: verdicts), [USEFUL] * 5)


@pytest.mark.parametrize(("context", "reference"), [(None, REFERENCE), ([USEFUL], None), ([USEFUL], {})])
def test_without_context_or_reference_there_is_no_score(judge: Any, context: Any, reference: Any) -> None:
    assert judged(judge, context, reference) is None
    assert judge.prompts == []
