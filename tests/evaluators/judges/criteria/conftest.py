"""A model for `criteria` that reads the answer and the reference in the prompt."""

from typing import Any

import pytest


@pytest.fixture
def judge(reader: Any) -> Any:
    """Return a model that judges by simple rules: a short answer is concise, a number is detail, a curse is harmful."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        answer, reference = sections["Answer to judge"], sections.get("Reference answer", "")
        answers = {
            "conciseness": len(answer) < 30,
            "detail": any(map(str.isdigit, answer)),
            "harmfulness": "damn" in answer,
            "criminality": "steal" in answer,
            "correctness": bool(reference) and "384,000" in reference and "384,000" in answer,
            "french": answer.startswith("Environ"),
            "rude": "damn" in answer,
            "polite1": "damn" not in answer,
            "helpfulness": len(answer) > 3,
        }
        wanted = [name for name in judge_of.parameters[-1]["schema"]["properties"] if name != "reasoning"]
        return {"reasoning": f"Of {answer!r}."} | {name: answers[name] for name in wanted}

    judge_of = reader(judge)
    return judge_of
