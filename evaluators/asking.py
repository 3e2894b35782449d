"""How a judge asks its model: what it is shown, how it is drawn, how often it is asked."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evaluators.answer import answer_text, reference_value
from evaluators.fence import fenced
from evaluators.prompt import check_prompt, prompt_hash
from evaluators.settings import is_number
from evaluators.sheet import Verdict
from evaluators.text import as_text
from specs.errors import short
from specs.protocols import Complete
from specs.template import fill

PROMPTS = Path(__file__).parent / "prompts"
NONE = "(none)"
"""What stands in a prompt for a text that an example lacks. It is not fenced, so that no text can pass for it."""

Temperature = float | Literal["auto"] | None
Fields = dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a model answered, of the schema, and the hash of what it was asked with."""

    verdict: Verdict
    prompt_hash: str


def shipped(name: str) -> str:
    """The text of a prompt that belongs to the program."""
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8")


def question(inputs: Fields) -> str:
    """The inputs, fenced: the only field, else the whole as JSON."""
    return fenced(answer_text(inputs or {}, None))


def answer(outputs: Fields, key: str | None = None) -> str:
    """The outputs, fenced: the field `key`, or the only one, else the whole as JSON."""
    return fenced(answer_text(outputs or {}, key))


def reference(reference_outputs: Fields, key: str | None = None) -> str:
    """The reference, fenced: the only field, else the field `key`, else the whole; (none) where there is none."""
    value = reference_value(reference_outputs, key)
    return NONE if value is None else fenced(as_text(value))


def shown(inputs: Fields, outputs: Fields, reference_outputs: Fields) -> dict[str, str]:
    """Question, answer and reference, each fenced, by their names."""
    return {
        "inputs": question(inputs),
        "outputs": answer(outputs),
        "reference_outputs": reference(reference_outputs),
    }


def shown_in_both_spellings(
    inputs: Fields, outputs: Fields, reference_outputs: Fields, metadata: Fields
) -> dict[str, str]:
    """What `shown` gives, also by Langfuse's names, and the metadata, which keep the name of a single field."""
    texts = shown(inputs, outputs, reference_outputs)
    theirs = {"inputs": "input", "outputs": "output", "reference_outputs": "expected_output"}
    texts |= {theirs[name]: text for name, text in texts.items()}
    return texts | {"metadata": fenced(as_text(metadata)) if metadata else NONE}


def numbered(what: str, texts: Iterable[str]) -> str:
    """Texts one under the other, each fenced and behind its number, from 1."""
    parts = [f"{what} {number}:\n{fenced(text)}" for number, text in enumerate(texts, start=1)]
    return "\n\n".join(parts) or NONE


def sampling(temperature: Any, repeats: int = 1) -> dict[str, Any]:
    """The parameters of a call. "auto" is 0 for one repeat, and 1 for several; None leaves it to the model.

    Raises ValueError for what is no temperature.
    """
    if temperature is None:
        return {}
    if temperature == "auto":
        return {"temperature": 0.0 if repeats == 1 else 1.0}
    if not is_number(temperature) or temperature < 0:
        raise ValueError(f"temperature: got {short(temperature)}, wanted a number of at least 0, 'auto' or null")
    return {"temperature": temperature}


async def ask(
    complete: Complete,
    prompt: str,
    texts: Mapping[str, str],
    schema: dict[str, Any],
    *,
    needed: Iterable[str],
    temperature: Temperature,
    said: Mapping[str, str] | None = None,
) -> Asked:
    """Ask once. `texts` are the example's, `said` are the spec's and part of the hash; a prompt asks for all `needed`.

    Raises ValueError for a prompt that cannot be filled, before anything is asked.
    """
    said = said or {}
    values = {**texts, **said}
    check_prompt(prompt, values, needed=[[name] for name in needed])
    completion = await complete(fill(prompt, values), schema=schema, **sampling(temperature))
    return Asked(verdict=completion.parsed, prompt_hash=prompt_hash(prompt, *said.values(), schema))


async def repeated(
    complete: Complete, request: str, schema: dict[str, Any], repeats: int, parameters: Mapping[str, Any]
) -> list[Verdict]:
    """What each repeat says. All are waited for, also where one fails: what they cost is this judgement's."""
    asked = (complete(request, schema=schema, repeat=number, **parameters) for number in range(repeats))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for one in answers:
        if isinstance(one, BaseException):
            raise one
    return [one.parsed for one in answers if not isinstance(one, BaseException)]
