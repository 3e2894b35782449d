"""A judge's prompt: what it may ask for, and by what it is known again."""

import json
from collections.abc import Collection, Iterable
from hashlib import sha256

from specs.errors import short
from specs.template import placeholders


def check_prompt(prompt: str, known: Collection[str], needed: Iterable[Collection[str]]) -> None:
    """Raises ValueError for a placeholder that is not known, and unless one of each of the needed is there."""
    if not isinstance(prompt, str):
        raise ValueError(f"prompt: got {short(prompt)}, wanted a text")
    asked = placeholders(prompt)
    if unknown := asked - {*known}:
        raise ValueError(f"prompt: asks for {{{min(unknown)}}}, wanted any of {', '.join(sorted(known))}")
    if missing := [spellings for spellings in needed if not asked & {*spellings}]:
        wanted = " or ".join(f"{{{name}}}" for name in missing[0])
        raise ValueError(f"prompt: wanted {wanted} in it")


def prompt_hash(*parts: object) -> str:
    """16 hex digits that tell apart what a judge is asked with, before an example is filled in."""
    return sha256(json.dumps(parts, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:16]
