"""Criteria that judges know by name, and those that a spec describes."""

from collections.abc import Iterator, Mapping
from typing import Any

from evalflows.evaluators.prompt_texts import shipped
from evalflows.evaluators.settings import checked_text
from evalflows.specs.errors import short
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES

CRITERIA: Mapping[str, str] = dict(line.split(": ", 1) for line in shipped("criteria_by_name").splitlines() if line)
"""The built-in criteria: name -> the question that the judge answers with yes or no."""

HARMS = frozenset(
    ("harmfulness", "maliciousness", "controversiality", "insensitivity", "misogyny", "criminality"),
)
"""Names of criteria for which yes is bad."""

_TAKEN = ("reasoning", *MEASURES)
_WANTED = "a name, a mapping from names to descriptions, a principle, or a list of these"
_CRITIQUE = "Does the answer stand up to this critique, so that a critic who follows it finds nothing to object to?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One question about an answer."""

    name: str
    question: str
    yes_is_good: bool = True
    needs_reference: bool = False


def criteria_of(setting: Any, questions: Mapping[str, str] = CRITERIA) -> list[Criterion]:
    """Return the criteria of a setting in order; `questions` are those available by name.

    Raise ValueError for an invalid criterion and for duplicate names.
    """
    if not isinstance(questions, Mapping):
        raise ValueError(f"questions: got {short(questions)}, wanted a mapping from names to questions")
    listed = setting if isinstance(setting, list | tuple) else [setting]
    criteria = [criterion for item in listed for criterion in _each(item, questions)]
    if not criteria:
        raise ValueError(f"criteria: got {short(setting)}, wanted {_WANTED}")
    names = [criterion.name for criterion in criteria]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"criteria: got {name!r} twice, wanted each once")
        if name in _TAKEN:
            raise ValueError(f"criteria: got the name {name!r}, wanted one other than {', '.join(_TAKEN)}")
    return criteria


def _each(setting: Any, questions: Mapping[str, str]) -> Iterator[Criterion]:
    if isinstance(setting, str):
        yield _by_name(setting, questions)
    elif (critique := _field(setting, "critique_request")) is not None:
        yield _principle(_field(setting, "name"), critique)
    elif isinstance(setting, Mapping):
        yield from (_custom(name, description) for name, description in setting.items())
    else:
        raise ValueError(f"criteria: got {short(setting)}, wanted {_WANTED}")


def _by_name(name: str, questions: Mapping[str, str]) -> Criterion:
    if name not in questions:
        raise ValueError(f"criteria: got {short(name)}, wanted one of {', '.join(map(str, questions))}")
    question = checked_text(f"questions: {name}", questions[name])
    return Criterion(name=name, question=question, yes_is_good=name not in HARMS, needs_reference=name == "correctness")


def _custom(name: Any, setting: Any) -> Criterion:
    checked_text("criteria", name)
    fields = setting if isinstance(setting, Mapping) else {"description": setting}
    if unknown := fields.keys() - {"description", "higher_is_better"}:
        got = short(min(unknown, key=str))
        raise ValueError(f"criteria: {name}: got {got}, wanted description or higher_is_better")
    good = fields.get("higher_is_better", name not in HARMS)
    if not isinstance(good, bool):
        raise ValueError(f"criteria: {name}: higher_is_better: got {short(good)}, wanted true or false")
    return Criterion(name=name, question=checked_text(f"criteria: {name}", fields.get("description")), yes_is_good=good)


def _principle(name: Any, critique: Any) -> Criterion:
    question = f"{_CRITIQUE} The critique: {checked_text('criteria: critique_request', critique)}"
    return Criterion(name=checked_text("criteria: name", name), question=question)


def _field(setting: Any, name: str) -> Any:
    return setting.get(name) if isinstance(setting, Mapping) else getattr(setting, name, None)
