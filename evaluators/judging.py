"""Ask a model for a verdict: the call with its prompt, temperature and repeats.

An answer that does not fit the schema is a CallError `bad_answer` (evalflows/llm/structured_output.py). It is retried;
if it never fits, the judgement is failed, without a value.
"""

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any, Literal

from evalflows.evaluators.scales import Verdict
from evalflows.evaluators.settings import is_number
from evalflows.specs.errors import short
from evalflows.specs.frozen import dataclass
from evalflows.specs.placeholders import fill, placeholders
from evalflows.specs.protocols import Complete

Temperature = float | Literal["auto"] | None


def check_prompt(prompt: str, known: Collection[str], needed: Iterable[Collection[str]]) -> None:
    """Raise ValueError for an unknown placeholder, or if all spellings in an item of `needed` are missing."""
    if not isinstance(prompt, str):
        raise ValueError(f"prompt: got {short(prompt)}, wanted a text")
    used = placeholders(prompt)
    if unknown := used - {*known}:
        raise ValueError(f"prompt: asks for {{{min(unknown)}}}, wanted any of {', '.join(sorted(known))}")
    if missing := [spellings for spellings in needed if not used & {*spellings}]:
        wanted = " or ".join(f"{{{name}}}" for name in missing[0])
        raise ValueError(f"prompt: wanted {wanted} in it")


def prompt_hash(*parts: object) -> str:
    """Return 16 hex digits that identify a judge's prompt, settings and schema, before an example is filled in."""
    return sha256(json.dumps(parts, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """A model's verdict, valid under the schema, and the hash of prompt and schema."""

    verdict: Verdict
    prompt_hash: str


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
