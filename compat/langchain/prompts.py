"""The prompts of a comparison: ours, a text, or any object that is filled as LangChain's templates are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.asking import shipped
from specs.errors import InputError, short
from specs.template import fill, placeholders

_THEIRS = {
    "inputs": "{input}",
    "first": "{prediction}",
    "second": "{prediction_b}",
    "reference_outputs": "{reference}",
    "criteria": "{criteria}",
    "verdict": "{verdict}",
}
"""Our variables in LangChain's words."""

PLAIN, LABELLED = (fill(shipped(name), _THEIRS) for name in ("pairwise", "pairwise_labelled"))
"""Those of `pairwise_preference`, without a reference and with one. Besides LangChain's variables they ask for
{verdict}: how to give it."""


@dataclass(frozen=True, kw_only=True)
class PromptTemplate:
    """A text with `{variables}`; `{{` and `}}` stand for braces. What `input_variables` are is read off the text."""

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
        """The same with some variables filled already."""
        return PromptTemplate(template=self.template, partial_variables={**self.partial_variables, **values})

    def format(self, **values: object) -> str:
        """The text. Raises KeyError for a variable that has no value."""
        return fill(self.template, {**self.partial_variables, **values})

    def __str__(self) -> str:
        """The text as far as it is filled."""
        return self.format(**{name: f"{{{name}}}" for name in self.input_variables})


def as_prompt(given: object) -> Any:
    """Something with `format` and `input_variables`. Raises InputError for what can be made none."""
    if isinstance(given, str):
        return PromptTemplate.from_template(given)
    if hasattr(given, "format") and hasattr(given, "input_variables"):
        return given
    if isinstance(template := getattr(given, "template", None), str):
        return PromptTemplate.from_template(template)
    raise InputError(f"prompt: got {short(given)}, wanted a text with {{prediction}} and so on, or a prompt template")


def check_variables(prompt: Any, wanted: set[str]) -> None:
    """Raises ValueError unless a prompt asks for just these variables."""
    asked = {*prompt.input_variables}
    if asked != wanted:
        got = ", ".join(sorted(asked)) or "none"
        raise ValueError(f"prompt: got the variables {got}, wanted {', '.join(sorted(wanted))}")


def with_criteria(prompt: Any, criteria: str) -> Any:
    """The prompt with its criteria filled in, where it can be filled by and by."""
    return prompt.partial(criteria=criteria) if hasattr(prompt, "partial") else prompt


def filled(prompt: Any, values: Mapping[str, str]) -> str | list[Any]:
    """A text, or of a chat's prompt its messages; of the values, those that it still asks for."""
    asked = {name: values[name] for name in prompt.input_variables}
    if hasattr(prompt, "format_messages"):
        return list(prompt.format_messages(**asked))
    return str(prompt.format(**asked))
