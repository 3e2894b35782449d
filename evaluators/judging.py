"""Calls of a judge to its model: the texts shown, sampling parameters and repeats.

An answer that does not fit the schema is a CallError `bad_answer` (llm/structured_output.py). It is retried; if it
never fits, the judgement is failed, without a value.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evalflows.evaluators.fence import fenced
from evalflows.evaluators.prompt import check_prompt, prompt_hash
from evalflows.evaluators.settings import is_number
from evalflows.evaluators.sheet import Verdict
from evalflows.evaluators.text import answer_text, as_text, reference_value
from evalflows.specs.errors import short
from evalflows.specs.protocols import Complete
from evalflows.specs.template import fill

PROMPTS = Path(__file__).parent / "prompts"
NONE = "(none)"
"""Placeholder in a prompt for a text that an example lacks. It is not fenced, so no other text can imitate it."""

Temperature = float | Literal["auto"] | None
Fields = dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """A model's verdict, valid under the schema, and the hash of prompt and schema."""

    verdict: Verdict
    prompt_hash: str


def shipped(name: str) -> str:
    """Return the text of a built-in prompt."""
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8")


def question(inputs: Fields) -> str:
    """Return the inputs, fenced: the only field, else all of them as JSON."""
    return fenced(answer_text(inputs or {}, None))


def answer(outputs: Fields, key: str | None = None) -> str:
    """Return the outputs, fenced: the field `key` if given, else the only field, else all of them as JSON."""
    return fenced(answer_text(outputs or {}, key))


def reference(reference_outputs: Fields, key: str | None = None) -> str:
    """Return the reference, fenced: its only field, or the field `key` of several, or all of it; (none) without one."""
    value = reference_value(reference_outputs, key)
    return NONE if value is None else fenced(as_text(value))


def prompt_texts(inputs: Fields, outputs: Fields, reference_outputs: Fields) -> dict[str, str]:
    """Return question, answer and reference, each fenced, by name."""
    return {
        "inputs": question(inputs),
        "outputs": answer(outputs),
        "reference_outputs": reference(reference_outputs),
    }


def prompt_texts_in_both_spellings(
    inputs: Fields, outputs: Fields, reference_outputs: Fields, metadata: Fields
) -> dict[str, str]:
    """Return the texts of `prompt_texts` under LangSmith's and Langfuse's names, and the metadata as JSON."""
    texts = prompt_texts(inputs, outputs, reference_outputs)
    langfuse = {"inputs": "input", "outputs": "output", "reference_outputs": "expected_output"}
    texts |= {langfuse[name]: text for name, text in texts.items()}
    return texts | {"metadata": fenced(as_text(metadata)) if metadata else NONE}


def numbered(what: str, texts: Iterable[str]) -> str:
    """Return the texts, each fenced and numbered from 1."""
    parts = [f"{what} {number}:\n{fenced(text)}" for number, text in enumerate(texts, start=1)]
    return "\n\n".join(parts) or NONE


def sampling(temperature: Any, repeats: int = 1) -> dict[str, Any]:
    """Return the sampling parameters of a call. "auto" is 0 for one repeat and 1 for several; None uses the model's.

    Raise ValueError for an invalid temperature.
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
    spec_texts: Mapping[str, str] | None = None,
) -> JudgeReply:
    """Call the model once. `texts` come from the example, `spec_texts` from the spec; the latter are part of the hash.

    The prompt must ask for all of `needed`. Raise ValueError before the call for a prompt that cannot be filled.
    """
    spec_texts = spec_texts or {}
    values = {**texts, **spec_texts}
    check_prompt(prompt, values, needed=[[name] for name in needed])
    completion = await complete(fill(prompt, values), schema=schema, **sampling(temperature))
    return JudgeReply(verdict=completion.parsed, prompt_hash=prompt_hash(prompt, *spec_texts.values(), schema))


async def repeated(
    complete: Complete, request: str, schema: dict[str, Any], repeats: int, parameters: Mapping[str, Any]
) -> list[Verdict]:
    """Return the verdict of each repeat. Wait for all, even if one fails, so that their cost counts for this judgement.

    Raise the first failure.
    """
    calls = (complete(request, schema=schema, repeat=number, **parameters) for number in range(repeats))
    completions = await asyncio.gather(*calls, return_exceptions=True)
    for completion in completions:
        if isinstance(completion, BaseException):
            raise completion
    return [completion.parsed for completion in completions if not isinstance(completion, BaseException)]
