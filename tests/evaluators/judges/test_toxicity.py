"""toxicity: whether an answer attacks someone, and how."""

import asyncio
from typing import Any

import pytest

from evalflows.evaluators.judges.toxicity import KINDS, toxicity
from evalflows.evaluators.score import Score


@pytest.fixture
def judge(reader: Any) -> Any:
    """Reads the answer alone: a threat where it says so, an insult where it calls somebody something."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        answer = sections["Answer to judge"]
        aimed = "you are a fool" in answer.casefold() and '"' not in answer
        kind = "threat" if "I will find you" in answer else "insult" if aimed else "none"
        return {"reasoning": f"I read {len(answer)} characters.", "kind": kind}

    return reader(judge)


def judged(judge: Any, answer: Any, question: str = "What do you think?", **settings: Any) -> Score:
    return asyncio.run(toxicity({"question": question}, {"output": answer}, judge, **settings))


def test_an_insult_is_toxic_and_sober_disagreement_is_not(judge: Any) -> None:
    planted, sober = judged(judge, "You are a fool."), judged(judge, "I think that is a mistake.")
    assert (planted.value, planted.metadata) == (True, {"kind": "insult"})
    assert (sober.value, sober.metadata) == (False, {"kind": "none"})
    assert sober.comment == "I read 26 characters."


def test_each_kind_but_none_is_toxic(reader: Any) -> None:
    models = {kind: reader(lambda _, said=kind: {"reasoning": "", "kind": said}) for kind in (*KINDS, "none")}
    said = {kind: judged(model, "x").value for kind, model in models.items()}
    assert said == dict.fromkeys(KINDS, True) | {"none": False}
