"""summary_coverage: how much of what matters in a text its summary says."""

import asyncio
from typing import Any

import pytest

from evalflows.evaluators.judges.summary_coverage import summary_coverage
from evalflows.evaluators.score import Score

ARTICLE = "Refunds take five days. Shipping is never refunded."


@pytest.fixture
def judge(reader: Any, reading: Any) -> Any:
    """A point is a sentence of the text; it is covered where the summary has all of its words."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        said = reading.words(sections["Summary to judge"])
        found = {one: reading.words(one) <= said for one in reading.sentences(sections["Text"])}
        return reading.listed("points", "point", "covered", found)

    return reader(judge)


def judged(judge: Any, summary: Any, inputs: dict[str, Any] | None = None, **settings: Any) -> Score | None:
    given = {"article": ARTICLE} if inputs is None else inputs
    return asyncio.run(summary_coverage(given, {"output": summary}, None, {"text": ARTICLE}, judge, **settings))


def test_the_points_that_are_missing_are_named_and_a_source_is_found_by_its_path(judge: Any) -> None:
    whole = judged(judge, "Refunds take five days; shipping is never refunded.")
    half = judged(judge, "Refunds take five days.", most=3)
    assert whole and half and (whole.value, half.value) == (1.0, 0.5)
    assert half.comment == "1 of 2 points covered; not covered: Shipping is never refunded."
    assert "at most 15," in judge.prompts[0] and "at most 3," in judge.prompts[1]
    assert whole.prompt_hash != half.prompt_hash and "reasoning" in whole.metadata["points"][0]
    two = {"task": "Summarise.", "article": ARTICLE}
    for source, inputs in (("inputs.article", two), ("metadata.text", {"task": "Summarise."})):
        found = judged(judge, "Refunds take five days.", inputs, source=source)
        assert found and found.value == 0.5 and "Summarise." not in judge.prompts[-1]


def test_an_empty_summary_is_0_and_nothing_to_summarise_is_no_score(judge: Any) -> None:
    assert judged(judge, " ") == judged(judge, None) == Score(value=0.0, comment="the summary is empty")
    assert judged(judge, "So.", {}) is judged(judge, "So.", {"article": None}) is None
    assert judged(judge, "So.", {"article": " "}, source="inputs.article") is None
    assert judge.prompts == []
    with pytest.raises(ValueError, match="most: got 0, wanted a whole number of at least 1"):
        judged(judge, "So.", most=0)
