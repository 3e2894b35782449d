"""A judge's prompt: check its placeholders and hash it."""

import json
from collections.abc import Collection, Iterable
from hashlib import sha256

from evalflows.specs.errors import short
from evalflows.specs.template import placeholders


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
