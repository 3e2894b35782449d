"""A conversation: what is one, and which turns are the assistant's."""

from typing import Any

import pytest

from evalflows.specs.columns import checked_messages, turns_of

LETTERS = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool", "f": "function"}


def turns(letters: str) -> list[tuple[int, int, int]]:
    """Number, begin and end of each turn, of messages given by the first letters of their roles."""
    return [(turn.number, turn.begins, turn.ends) for turn in turns_of([{"role": LETTERS[one]} for one in letters])]


@pytest.mark.parametrize(
    ("letters", "wanted"),
    [
        ("", []),
        ("ua", [(1, 1, 2)]),
        ("suaua", [(1, 2, 3), (2, 4, 5)]),
        ("uatatau", [(1, 1, 6)]),
        ("uasa", [(1, 1, 2), (2, 3, 4)]),
        ("utua", [(1, 3, 4)]),
        ("uta", [(1, 1, 3)]),
        ("duafa", [(1, 2, 5)]),
    ],
)
def test_a_turn_is_what_the_assistant_and_its_tools_say_in_a_row(letters: str, wanted: list[Any]) -> None:
    assert turns(letters) == wanted


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "messages: got NoneType, wanted a list of {role, content}"),
        ({"role": "user"}, "messages: got dict, wanted a list of {role, content}"),
        ([{"role": "user"}, "x"], "messages: 2: got 'x', wanted {role, content}"),
        ([{"content": "x"}], "messages: 1: got {'content': 'x'}, wanted {role, content}"),
        ([{"role": "ai"}], "messages: 1: got the role 'ai', wanted one of system, developer, user, assistant, tool, "),
        ([{"role": "user", "content": 7}], "messages: 1: got the content 7, wanted a text or a list of parts"),
        ([{"role": "user", "content": [7]}], "messages: 1: got the content [7], wanted a text or a list of parts"),
        ([{"role": "assistant", "tool_calls": "f"}], "messages: 1: got the tool_calls 'f', wanted a list of calls"),
    ],
)
def test_what_is_no_list_of_messages_is_said_in_one_line(value: Any, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        checked_messages(value)
    assert str(caught.value).startswith(says)
