"""What all prompts of a built-in judge have in common stands first, and the answer last, for the provider's cache."""

import asyncio
import re
from inspect import signature
from itertools import takewhile
from typing import Any

import pytest

from evalflows import evaluators
from evalflows.evaluators.binding import bind
from evalflows.evaluators.views import ExampleView, RunView, offer_pair, offer_run

JUDGES = sorted(
    name for name in evaluators.SHORT_NAMES if "temperature" in signature(getattr(evaluators, name)).parameters
)
MODES = [{"name": name, "definition": f"It is {name}."} for name in ("vague", "wrong")]
SETTINGS: dict[str, dict[str, Any]] = {
    "failure_modes": {"taxonomy": {"modes": MODES}},
    "instruction_following": {"instructions": ["Be brief."]},
    **{name: {"rubric": "Is it kind?"} for name in ("rubric", "turn_quality", "conversation_quality", "trajectory")},
    "criteria": {"criteria": ["helpfulness"]},
    "context_use": {"instructions": "Look closely."},
    "role_adherence": {"role": "A patient clerk."},
    "correctness": {"instructions": "Be strict."},
    "turn_errors": {"instructions": "Be strict."},
}
LABELS = re.compile(r"Context \d+:|[^\n]{,60}:|Turns [^\n]*: \d|How [^\n]*: \w+|\(none\)")


class _Asked(BaseException):
    pass


def prompt_of(name: str, mark: str, **settings: Any) -> str:
    """The first prompt of a judge about an example whose every text begins with a mark."""
    said = [{"role": role, "content": f"{mark} {role} {turn}"} for turn in range(2) for role in ("user", "assistant")]
    inputs = {"question": f"{mark} asks", "context": [f"{mark} context"], "goal": f"{mark} goal"}
    example = ExampleView(id="1", inputs=inputs, reference_outputs={"answer": f"{mark} reference"})
    outputs = {"messages": said} if name in CONVERSATIONS else {"answer": f"{mark} answer"}
    runs = [RunView(id=str(number), inputs=inputs, outputs=outputs) for number in range(2)]
    prompts: list[str] = []

    async def complete(messages: Any, **parameters: Any) -> Any:
        prompts.append(messages if isinstance(messages, str) else messages[-1]["content"])
        raise _Asked

    is_pair = name in evaluators.PAIRWISE
    offered = offer_pair(example, *runs) if is_pair else offer_run(example, runs[0])
    bound = bind(
        getattr(evaluators, name), settings=SETTINGS.get(name, {}) | settings, scope="pair" if is_pair else "item"
    )

    async def judge() -> None:
        await bound.call({**offered, "complete": complete, "embed": None})

    with pytest.raises(_Asked):
        asyncio.run(judge())
    return prompts[0]


CONVERSATIONS = (
    "context_use",
    "conversation_quality",
    "role_adherence",
    "turn_errors",
    "turn_quality",
    "trajectory",
    "user_kept_to_goal",
)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in JUDGES),
        ("failure_modes", {"taxonomy": {"kind": "topic", "modes": MODES}}),
        ("pairwise_preference", {"reference": True}),
    ],
)
def test_all_but_example_and_answer_is_in_the_common_beginning(name: str, settings: dict[str, Any]) -> None:
    one, other = (prompt_of(name, mark, **settings) for mark in ("Anna", "Berta"))
    same = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    rest = re.sub(r"\[BEGIN[^\n]*\n.*?\n\[END \w+\]", "", one[same.rindex("\n") :], flags=re.DOTALL)
    assert [line for line in rest.splitlines() if line.strip() and not LABELS.fullmatch(line)] == []
    assert len(same) > 400 and "Anna" not in same
    last = "context" if name == "context_precision" else "reference" if name == "context_recall" else "answer"
    assert f"Anna {last}" in one[one.rindex("[BEGIN") :] or name in CONVERSATIONS
