"""Truncation: system messages and the newest exchanges stay, whole, within the budget."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.conversations import estimated_tokens, truncated
from evalflows.specs.columns import SYSTEM

Message = dict[str, Any]


def one_each(message: Any) -> int:
    return 1


def call(*ids: str) -> list[Message]:
    return [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]


SYS: Message = {"role": "system", "content": "s"}
FIRST: list[Message] = [{"role": "user", "content": "u1"}, {"role": "assistant", "content": "a1"}]
TOOLS: list[Message] = [
    {"role": "user", "content": "u2"},
    {"role": "assistant", "content": None, "tool_calls": call("c1")},
    {"role": "tool", "tool_call_id": "c1", "content": "t"},
    {"role": "assistant", "content": "a2"},
]
LAST: list[Message] = [{"role": "user", "content": "u3"}, {"role": "user", "content": "u3 again"}]
WHOLE = [SYS, *FIRST, *TOOLS, *LAST]


@pytest.mark.parametrize(
    ("budget", "wanted"),
    [
        (None, WHOLE),
        (9, WHOLE),
        (8, [SYS, *TOOLS, *LAST]),
        (7, [SYS, *TOOLS, *LAST]),
        (6, [SYS, *LAST]),  # the exchange with the tool does not fit whole, and the one before it is not kept without
        (3, [SYS, *LAST]),
        (1, [SYS, *LAST]),  # there is nothing to judge without these
    ],
)
def test_the_newest_exchanges_that_fit_are_kept_with_the_system_messages(
    budget: int | None, wanted: list[Message]
) -> None:
    found = truncated(WHOLE, budget, one_each)
    assert found.messages == wanted
    assert found.left_out == len(WHOLE) - len(wanted)


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "6000"])
def test_a_budget_that_is_none_is_refused(budget: Any) -> None:
    with pytest.raises(ValueError, match=r"^budget_tokens: got .*, wanted a whole number of at least 1$"):
        truncated(WHOLE, budget)


ids = st.sampled_from(["c1", "c2", "c3"])
texts = st.text(max_size=30)
messages = st.lists(
    st.one_of(
        st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["system", "developer"]), texts),
        st.builds(lambda text: {"role": "user", "content": text}, texts),
        st.builds(lambda text: {"role": "assistant", "content": text}, texts),
        st.builds(lambda one: {"role": "assistant", "content": None, "tool_calls": call(one)}, ids),
        st.builds(lambda one, text: {"role": "tool", "tool_call_id": one, "content": text}, ids, texts),
    ),
    max_size=25,
)


def newest_exchange(whole: list[Message]) -> list[int]:
    """Found from behind, unlike in the code: back to the last user's message that follows no other."""
    spoken = [place for place, message in enumerate(whole) if message["role"] not in SYSTEM]
    for at in reversed(range(len(spoken))):
        is_first = at == 0 or whole[spoken[at - 1]]["role"] != "user"
        if at == 0 or (whole[spoken[at]]["role"] == "user" and is_first):
            return spoken[at:]
    return []


@settings(deadline=None, max_examples=100)
@given(messages, st.integers(1, 200))
def test_whatever_the_conversation_the_promises_hold(whole: list[Message], budget: int) -> None:
    found = truncated(whole, budget)
    assert found.messages == [whole[place] for place in found.kept]
    assert found.kept == sorted({*found.kept}) and found.left_out == len(whole) - len(found.kept)
    system = [place for place, message in enumerate(whole) if message["role"] in SYSTEM]
    assert {*system} <= {*found.kept}
    newest = newest_exchange(whole)
    assert {place for place in newest if whole[place]["role"] != "tool"} <= {*found.kept}
    if {*found.kept} - {*system, *newest}:
        assert sum(map(estimated_tokens, found.messages)) <= budget
    made: set[str] = set()
    for message in found.messages:
        assert message["role"] != "tool" or message["tool_call_id"] in made
        made |= {one["id"] for one in message.get("tool_calls") or []}


@settings(deadline=None, max_examples=40)
@given(messages, st.integers(1, 200), st.integers(0, 100))
def test_a_larger_budget_never_keeps_less(whole: list[Message], budget: int, more: int) -> None:
    assert {*truncated(whole, budget).kept} <= {*truncated(whole, budget + more).kept}
