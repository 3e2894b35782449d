"""A judge's score sheet: what it is asked to fill in, and the scores that several fillings make."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any, Literal, TypeVar

from evaluators.score import Score

SCALE = (1, 5)
"""The worst and the best where nothing else is said."""

Combine = Literal["mean", "median", "majority"]
Reasoning = Literal["before", "after", "none"]
Verdict = Mapping[str, Any]
Said = TypeVar("Said")


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """What several repeats said of one thing, as one."""

    number: float | None = None
    label: str | None = None
    spread: float | None = None
    nearest: int  # the first repeat that said it, or came nearest to it

    def score(self, verdicts: Sequence[Verdict], key: str | None) -> Score:
        comment = verdicts[self.nearest].get("reasoning")
        return Score(value=self.number, key=key, label=self.label, comment=comment, spread=self.spread)


def verdict_schema(title: str, fields: Mapping[str, Any], reasoning: Reasoning = "none") -> dict[str, Any]:
    """The JSON schema of a verdict: an object of just these fields, with the reasoning before or after them.

    A model writes the fields in their order: from reasoning that comes first, the verdict follows.
    """
    why: dict[str, Any] = {} if reasoning == "none" else {"reasoning": {"type": "string"}}
    all_fields = {**fields, **why} if reasoning == "after" else {**why, **fields}
    return {
        "title": title,
        "type": "object",
        "properties": all_fields,
        "required": [*all_fields],
        "additionalProperties": False,
    }


def _majority(said: Sequence[Said]) -> Said:
    """What was said most often; of several, what was said first."""
    return Counter(said).most_common(1)[0][0]


_COMBINED: Mapping[Combine, Callable[[Sequence[int]], float]] = {
    "mean": fmean,
    "median": median,
    "majority": _majority,
}


def combined(said: Sequence[int], combine: Combine) -> Combined:
    """Several whole numbers, or yeses and noes, as one."""
    number = float(_COMBINED[combine](said))
    return Combined(number=number, spread=spread_of(said), nearest=nearest_to(number, said))


@dataclass(frozen=True, slots=True)
class Scale:
    """Whole numbers, the worst and the best among them."""

    worst: int
    best: int
    combine: Combine
    field = "score"

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.worst, "maximum": self.best}

    def words(self) -> str:
        return f"a whole number from {self.worst} (worst) to {self.best} (best)"

    def number(self, said: int) -> float | None:
        return float(said)

    def combined(self, said: Sequence[int]) -> Combined:
        return combined(said, self.combine)


@dataclass(frozen=True, slots=True)
class Labels:
    """Some texts, each with the number that it stands for, or None."""

    numbers: Mapping[str, float | None]
    field = "label"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": [*self.numbers]}

    def words(self) -> str:
        return f"one of {_quoted(self.numbers)}"

    def number(self, said: str) -> float | None:
        return self.numbers[said]

    def combined(self, said: Sequence[str]) -> Combined:
        label = _majority(said)
        numbers = [number for one in said if (number := self.numbers[one]) is not None]
        return Combined(
            number=self.numbers[label], label=label, spread=spread_of(numbers), nearest=list(said).index(label)
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """One answer, or one for each criterion, whose weights are given by its name."""

    answers: Scale | Labels
    weights: Mapping[str, float] | None
    reasoning: Reasoning

    @property
    def _fields(self) -> list[str]:
        return [self.answers.field] if self.weights is None else [*self.weights]

    def words(self) -> str:
        """What is to be given; it follows "Give"."""
        if self.weights is None:
            return f'"{self.answers.field}": {self.answers.words()}'
        return f"for each criterion, by its name ({_quoted(self.weights)}): {self.answers.words()}"

    def schema(self) -> dict[str, Any]:
        return verdict_schema("rubric", {name: self.answers.schema() for name in self._fields}, self.reasoning)

    def scores(self, verdicts: Sequence[Verdict]) -> list[Score]:
        """The score over some verdicts, each of the schema; behind it one of each criterion, under its name."""
        each = {name: self.answers.combined([verdict[name] for verdict in verdicts]) for name in self._fields}
        if self.weights is None:
            return [each[self.answers.field].score(verdicts, None)]
        overall = self._weighed([combined.number for combined in each.values()])
        said = [self._weighed([self.answers.number(verdict[name]) for name in each]) for verdict in verdicts]
        whole = Combined(number=overall, spread=spread_of(said), nearest=nearest_to(overall, said))
        return [whole.score(verdicts, None), *(one.score(verdicts, name) for name, one in each.items())]

    def _weighed(self, numbers: Iterable[float | None]) -> float:
        """The weighted mean of a number of each criterion, in their order. Raises where one has none."""
        return fmean([number for number in numbers if number is not None], [*(self.weights or {}).values()])


def spread_of(numbers: Sequence[float]) -> float | None:
    """The sample's standard deviation; None for one number."""
    return stdev(numbers) if len(numbers) > 1 else None


def nearest_to(number: float, numbers: Sequence[float]) -> int:
    """The place of the first of the nearest; rounded, so that the last bit of a float does not choose."""
    distances = [round(abs(one - number), 9) for one in numbers]
    return distances.index(min(distances))


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)
