"""Prompts for comparisons: the default ones, a text, or any object with the interface of LangChain's templates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalflows.evaluators.asking import shipped
from evalflows.specs.errors import InputError, short
from evalflows.specs.template import fill, placeholders

_LANGCHAIN_VARIABLES = {
    "inputs": "{input}",
    "first": "{prediction}",
    "second": "{prediction_b}",
    "reference_outputs": "{reference}",
    "criteria": "{criteria}",
    "verdict": "{verdict}",
}
"""Our prompt variables as LangChain's."""

PLAIN, LABELLED = (fill(shipped(name), _LANGCHAIN_VARIABLES) for name in ("pairwise", "pairwise_labelled"))
"""The prompts of `pairwise_preference`, without and with a reference. Besides LangChain's variables they contain
{verdict}: how to give the verdict."""


@dataclass(frozen=True, kw_only=True)
class PromptTemplate:
    """A text with `{variables}`; `{{` and `}}` are literal braces. `input_variables` are found in the text."""

    template: str
    input_variables: list[str] = field(default_factory=list)
    partial_variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = placeholders(self.template) - {*self.partial_variables}
        object.__setattr__(self, "input_variables", sorted(asked))

    @classmethod
    def from_template(cls, template: str) -> "PromptTemplate":
        return cls(template=template)

    def partial(self, **values: str) -> "PromptTemplate":
        """Return a template with some variables already filled."""
        return PromptTemplate(template=self.template, partial_variables={**self.partial_variables, **values})

    def format(self, **values: object) -> str:
        """Return the filled text. Raises KeyError for a variable without a value."""
        return fill(self.template, {**self.partial_variables, **values})

    def __str__(self) -> str:
        """The text with the variables filled so far."""
        return self.format(**{name: f"{{{name}}}" for name in self.input_variables})


def as_prompt(prompt: object) -> Any:
    """Return a prompt with `format` and `input_variables`. Raises InputError if the argument cannot be made one."""
    if isinstance(prompt, str):
        return PromptTemplate.from_template(prompt)
    if hasattr(prompt, "format") and hasattr(prompt, "input_variables"):
        return prompt
    if isinstance(template := getattr(prompt, "template", None), str):
        return PromptTemplate.from_template(template)
    raise InputError(f"prompt: got {short(prompt)}, wanted a text with {{prediction}} and so on, or a prompt template")


def check_variables(prompt: Any, wanted: set[str]) -> None:
    """Raise ValueError unless a prompt has exactly these variables."""
    variables = {*prompt.input_variables}
    if variables != wanted:
        got = ", ".join(sorted(variables)) or "none"
        raise ValueError(f"prompt: got the variables {got}, wanted {', '.join(sorted(wanted))}")


def with_criteria(prompt: Any, criteria: str) -> Any:
    """Return the prompt with its criteria filled in, if it supports partial filling."""
    return prompt.partial(criteria=criteria) if hasattr(prompt, "partial") else prompt


def filled(prompt: Any, values: Mapping[str, str]) -> str | list[Any]:
    """Fill the remaining variables; return the text, or the messages of a chat prompt."""
    variables = {name: values[name] for name in prompt.input_variables}
    if hasattr(prompt, "format_messages"):
        return list(prompt.format_messages(**variables))
    return str(prompt.format(**variables))
