"""Shipped prompts, and the texts of an example for their placeholders."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evalflows.evaluators.fence import fenced
from evalflows.evaluators.paths import pick, reference_value

PROMPTS = Path(__file__).parent / "prompts"
NONE = "(none)"
"""Placeholder in a prompt for a text that an example lacks. It is not fenced, so no other text can imitate it."""

Fields = dict[str, Any] | None


def shipped(name: str) -> str:
    """Return the text of a built-in prompt."""
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8")


def question(inputs: Fields) -> str:
    """Return the inputs, fenced: the only field that is not null, else all that are not."""
    given = {name: value for name, value in (inputs or {}).items() if value is not None}
    return answer(given) if given or not inputs else fenced("")


def answer(outputs: Fields, key: str | None = None) -> str:
    """Return the outputs, fenced: the field `key` if given, else the only field, else all of them.

    A null is the empty text.
    """
    value = pick(outputs or {}, key)
    return fenced("" if value is None else value)


def reference(reference_outputs: Fields, key: str | None = None) -> str:
    """Return the reference, fenced: its only field, or the field `key` of several, or all of it; (none) without one."""
    value = reference_value(reference_outputs, key)
    return NONE if value is None else fenced(value)


def prompt_texts(inputs: Fields, outputs: Fields, reference_outputs: Fields, key: str | None = None) -> dict[str, str]:
    """Return question, answer and reference, each fenced, by name; `key` as in `answer` and `reference`."""
    return {
        "inputs": question(inputs),
        "outputs": answer(outputs, key),
        "reference_outputs": reference(reference_outputs, key),
    }


def prompt_texts_in_both_spellings(
    inputs: Fields, outputs: Fields, reference_outputs: Fields, metadata: Fields, key: str | None = None
) -> dict[str, str]:
    """Return the texts of `prompt_texts` under LangSmith's and Langfuse's names, and the metadata as JSON."""
    texts = prompt_texts(inputs, outputs, reference_outputs, key)
    langfuse = {"inputs": "input", "outputs": "output", "reference_outputs": "expected_output"}
    texts |= {langfuse[name]: text for name, text in texts.items()}
    return texts | {"metadata": fenced(metadata) if metadata else NONE}


def numbered(what: str, values: Iterable[Any]) -> str:
    """Return the values, each fenced and numbered from 1."""
    parts = [f"{what} {number}:\n{fenced(value)}" for number, value in enumerate(values, start=1)]
    return "\n\n".join(parts) or NONE
