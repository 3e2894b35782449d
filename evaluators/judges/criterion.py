"""What the setting `criteria` may name: questions of ours, one's own, constitutional principles."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.asking import shipped
from evaluators.settings import a_text
from specs.errors import short
from specs.metric import MEASURES

CRITERIA: Mapping[str, str] = dict(line.split(": ", 1) for line in shipped("criteria_by_name").splitlines() if line)
"""The criteria that can be called by name: name -> the question that the judge answers with yes or no."""

HARMS = frozenset(
    ("harmfulness", "maliciousness", "controversiality", "insensitivity", "misogyny", "criminality"),
)
"""Names by which yes is bad."""

_TAKEN = ("reasoning", *MEASURES)
_WANTED = "a name, a mapping from names to what they mean, a principle, or a list of these"
_CRITIQUE = "Does the answer stand up to this critique, so that a critic who follows it finds nothing to object to?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One question about an answer."""

    name: str
    says: str
    yes_is_good: bool = True
    needs_reference: bool = False


def criteria_of(given: Any, questions: Mapping[str, str] = CRITERIA) -> list[Criterion]:
    """The criteria that a setting names, in its order; `questions` are those that can be called by name.

    Raises ValueError for what is none, and a name given twice.
    """
    if not isinstance(questions, Mapping):
        raise ValueError(f"questions: got {short(questions)}, wanted a mapping from names to questions")
    listed = given if isinstance(given, list | tuple) else [given]
    found = [criterion for one in listed for criterion in _each(one, questions)]
    if not found:
        raise ValueError(f"criteria: got {short(given)}, wanted {_WANTED}")
    names = [criterion.name for criterion in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"criteria: got {name!r} twice, wanted each once")
        if name in _TAKEN:
            raise ValueError(f"criteria: got the name {name!r}, wanted another than {', '.join(_TAKEN)}")
    return found


def _each(given: Any, questions: Mapping[str, str]) -> Iterator[Criterion]:
    if isinstance(given, str):
        yield _by_name(given, questions)
    elif (critique := _field(given, "critique_request")) is not None:
        yield _principle(_field(given, "name"), critique)
    elif isinstance(given, Mapping):
        yield from (_own(name, says) for name, says in given.items())
    else:
        raise ValueError(f"criteria: got {short(given)}, wanted {_WANTED}")


def _by_name(name: str, questions: Mapping[str, str]) -> Criterion:
    if name not in questions:
        raise ValueError(f"criteria: got {short(name)}, wanted one of {', '.join(map(str, questions))}")
    says = a_text(f"questions: {name}", questions[name])
    return Criterion(name=name, says=says, yes_is_good=name not in HARMS, needs_reference=name == "correctness")


def _own(name: Any, given: Any) -> Criterion:
    a_text("criteria", name)
    fields = given if isinstance(given, Mapping) else {"description": given}
    if unknown := fields.keys() - {"description", "higher_is_better"}:
        got = short(min(unknown, key=str))
        raise ValueError(f"criteria: {name}: got {got}, wanted description or higher_is_better")
    good = fields.get("higher_is_better", name not in HARMS)
    if not isinstance(good, bool):
        raise ValueError(f"criteria: {name}: higher_is_better: got {short(good)}, wanted true or false")
    return Criterion(name=name, says=a_text(f"criteria: {name}", fields.get("description")), yes_is_good=good)


def _principle(name: Any, critique: Any) -> Criterion:
    says = f"{_CRITIQUE} The critique: {a_text('criteria: critique_request', critique)}"
    return Criterion(name=a_text("criteria: name", name), says=says)


def _field(given: Any, name: str) -> Any:
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)
