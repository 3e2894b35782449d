"""A model for judges that reads the prompt it gets: what it says depends on the texts inside the fences alone."""

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from evalflows.specs.protocols import Completion

_FENCED = re.compile(r"^([^\n]+):\n\[BEGIN (?:JSON )?(\w{16})\]\n(.*?)\n\[END \2\]$", flags=re.S | re.M)

Sections = dict[str, str]
"""The headings of a prompt, each with the text that is fenced below it."""


class Reader:
    """Says what `judge` makes of the sections of a prompt, held to the schema that is asked for."""

    def __init__(self, judge: Callable[[Sections], dict[str, Any]]) -> None:
        self.judge = judge
        self.prompts: list[str] = []
        self.parameters: list[dict[str, Any]] = []

    async def __call__(self, messages: Any, *, schema: dict[str, Any], **parameters: Any) -> Completion:
        self.prompts.append(messages)
        self.parameters.append(parameters | {"schema": schema})
        verdict = self.judge({heading: text for heading, _, text in _FENCED.findall(messages)})
        jsonschema.validate(verdict, schema)
        return Completion(text=json.dumps(verdict), parsed=verdict, model="reader", call_id="c")


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part]


def words(text: str) -> set[str]:
    """The words that carry meaning: of four letters and more, or with a figure."""
    return {word for word in re.findall(r"\w+", text.casefold()) if len(word) > 3 or any(map(str.isdigit, word))}


def contexts(sections: Sections) -> list[str]:
    return [text for heading, text in sections.items() if re.fullmatch(r"Context \d+", heading)]


def listed(entries: str, text: str, verdict: str, given: dict[str, bool], **beside: Any) -> dict[str, Any]:
    """A verdict of a judge that lists things."""
    items = [{text: one, "reasoning": "as I read it", verdict: is_so} for one, is_so in given.items()]
    return {entries: items, **beside}


@pytest.fixture
def reader() -> type[Reader]:
    return Reader


@pytest.fixture
def reading() -> Any:
    """What a judge reads by: `sentences`, `words`, `contexts`, `listed`."""

    class Reading:
        pass

    for function in (sentences, words, contexts, listed):
        setattr(Reading, function.__name__, staticmethod(function))
    return Reading
