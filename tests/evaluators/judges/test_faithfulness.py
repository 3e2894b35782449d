"""faithfulness: the share of claims that the context supports, by a judge that reads only what it is shown."""

import asyncio
from typing import Any

import pytest

from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judges.faithfulness import faithfulness
from evalflows.evaluators.score import Score

CONTEXT = ["The bridge was opened in 1932.", "It is 1149 metres long and carries eight lanes."]
QUESTION = "Tell me about the bridge."


@pytest.fixture
def judge(reader: Any, reading: Any) -> Any:
    """A claim is a sentence with words in it; it is supported where the contexts have all of its words."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        known = reading.words(" ".join(reading.contexts(sections)))
        claims = [one for one in reading.sentences(sections["Answer to judge"]) if not one.startswith("I do not")]
        return reading.listed("claims", "claim", "supported", {one: reading.words(one) <= known for one in claims})

    return reader(judge)


def judged(judge: Any, answer: Any, context: Any = CONTEXT, **settings: Any) -> Score | None:
    inputs = {"question": QUESTION, "context": context}
    return asyncio.run(faithfulness(inputs, {"output": answer}, None, {}, judge, **settings))


def test_an_answer_out_of_the_context_is_faithful_and_the_same_with_another_year_is_not(judge: Any) -> None:
    faithful = judged(judge, "The bridge was opened in 1932. It carries eight lanes.")
    planted = judged(judge, "The bridge was opened in 1923. It carries eight lanes.")
    assert faithful and planted
    assert (faithful.value, faithful.comment) == (1.0, "2 of 2 claims supported")
    assert planted.value == 0.5
    assert planted.comment == "1 of 2 claims supported; not supported: The bridge was opened in 1923."


def test_without_a_claim_or_an_answer_there_is_no_score(judge: Any) -> None:
    assert judged(judge, "I do not know.") is None
    assert len(judge.prompts) == 1
    for outputs, path in (
        ({"documents": CONTEXT}, "outputs.documents"),
        ({"result": {"documents": CONTEXT}}, "outputs.result.documents"),
    ):
        assert asyncio.run(faithfulness({}, outputs, None, {}, judge, context=path)) is None
    assert len(judge.prompts) == 1
    says = "context: got 'outputs.documents' and outputs of output, wanted outputs that have it"
    with pytest.raises(ValueError, match=says):
        asyncio.run(faithfulness({}, {"output": "Yes."}, None, {}, judge, context="outputs.documents"))


@pytest.mark.parametrize("nothing", [[], "", [" "]])
def test_where_nothing_was_retrieved_no_claim_is_supported(judge: Any, nothing: Any) -> None:
    score = judged(judge, "The bridge was opened in 1932.", context=nothing)
    assert score and score.value == 0.0
    assert "\n(none)\n" in judge.prompts[0]


def test_a_model_that_finds_claims_supported_by_nothing_is_not_believed(reader: Any, reading: Any) -> None:
    sure = reader(lambda _: reading.listed("claims", "claim", "supported", {"It opened in 1932.": True, "b": False}))
    score = judged(sure, "It opened in 1932.", context=[])
    assert score and score.value == 0.0
    assert score.comment == "0 of 2 claims supported; not supported: It opened in 1932.; b"
    assert score.metadata and [claim["supported"] for claim in score.metadata["claims"]] == [False, False]
    assert "says (none) in place of the contexts" in " ".join(sure.prompts[0].split())
    believed = judged(sure, "It opened in 1932.", context=["It opened in 1932."])
    assert believed and believed.value == 0.5


@pytest.mark.parametrize(
    ("outputs", "path", "shown"),
    [
        ({"result": {"answer": "It carries trams.", "documents": CONTEXT}}, "outputs.result.documents", None),
        ({"result": {"answer": "It carries trams.", "documents": [{"text": CONTEXT[0], "rank": 1}]}}, None, None),
        ({"answer": "It carries trams.", "found": {"documents": CONTEXT}}, "outputs.found.documents", "bare"),
        (
            {"answer": "It carries trams.", "found": {"by": {"documents": CONTEXT}}},
            "outputs.found.by.documents",
            "bare",
        ),
    ],
)
def test_of_what_the_target_gave_the_context_alone_is_left_out(
    judge: Any, outputs: dict[str, Any], path: str | None, shown: str | None
) -> None:
    path = path or "outputs.result.documents.text"
    score = asyncio.run(faithfulness({"question": QUESTION}, outputs, None, {}, judge, context=path))
    assert score and score.value == 0.0
    answer = "It carries trams." if shown else {"answer": "It carries trams."}
    assert f"Answer to judge:\n{fenced(answer)}" in judge.prompts[0]
    assert f"Context 1:\n{fenced(CONTEXT[0])}" in judge.prompts[0]
    assert "documents" in str(outputs), "what others judge is as it was"


def test_the_verdict_follows_the_claim_and_the_reasoning_about_it(judge: Any, reader: Any) -> None:
    judged(judge, "It carries eight lanes.")
    entry = judge.parameters[0]["schema"]["properties"]["claims"]["items"]
    assert list(entry["properties"]) == entry["required"] == ["claim", "reasoning", "supported"]
    assert judge.parameters[0]["temperature"] == 0.0
    short = reader(lambda _: {"claims": [{"claim": "a", "supported": False}]})
    score = judged(short, "It carries eight lanes.", reasoning=False, temperature=None)
    assert score and score.value == 0.0 and "temperature" not in short.parameters[0]
