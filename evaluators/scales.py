"""Scales and labels of judges: the score sheet of a verdict, and several verdicts combined into one."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any, Literal, TypeVar

from evalflows.evaluators.score import Score
from evalflows.specs.frozen import dataclass

SCALE = (1, 5)
"""The default scale: worst and best."""

Combine = Literal["mean", "median", "majority"]
Reasoning = Literal["before", "after", "none"]
Verdict = Mapping[str, Any]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """The values of several repeats combined into one."""

    number: float | None = None
    label: str | None = None
    spread: float | None = None
    nearest: int  # the first repeat with this value, or closest to it

    def score(self, verdicts: Sequence[Verdict], key: str | None) -> Score:
        comment = verdicts[self.nearest].get("reasoning")
        return Score(value=self.number, key=key, label=self.label, comment=comment, spread=self.spread)


def verdict_schema(title: str, fields: Mapping[str, Any], reasoning: Reasoning = "none") -> dict[str, Any]:
    """Return the JSON schema of a verdict: an object with exactly these fields, and the reasoning before or after them.

    A model writes the fields in order, so reasoning that comes first informs the verdict.
    """
    reasoning_field: dict[str, Any] = {} if reasoning == "none" else {"reasoning": {"type": "string"}}
    all_fields = {**fields, **reasoning_field} if reasoning == "after" else {**reasoning_field, **fields}
    return {
        "title": title,
        "type": "object",
        "properties": all_fields,
        "required": [*all_fields],
        "additionalProperties": False,
    }


def majority(values: Sequence[Value]) -> Value:
    """Return the most frequent value; on a tie, the value that occurs first."""
    return Counter(values).most_common(1)[0][0]


_COMBINED: Mapping[Combine, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "median": median,
    "majority": majority,
}


def combined(values: Sequence[float], combine: Combine) -> Combined:
    """Combine several numbers or bools into one."""
    number = float(_COMBINED[combine](values))
    return Combined(number=number, spread=spread_of(values), nearest=nearest_to(number, values))


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale of whole numbers from worst to best."""

    worst: int
    best: int
    combine: Combine
    field = "score"

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.worst, "maximum": self.best}

    def answer_format(self) -> str:
        return f"a whole number from {self.worst} (worst) to {self.best} (best)"

    def number(self, value: int) -> float | None:
        return float(value)

    def combined(self, values: Sequence[int]) -> Combined:
        return combined(values, self.combine)


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels, each with its number or None."""

    numbers: Mapping[str, float | None]
    field = "label"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": [*self.numbers]}

    def answer_format(self) -> str:
        return f"one of {_quoted(self.numbers)}"

    def number(self, value: str) -> float | None:
        return self.numbers[value]

    def combined(self, values: Sequence[str]) -> Combined:
        label = majority(values)
        numbers = [number for text in values if (number := self.numbers[text]) is not None]
        return Combined(
            number=self.numbers[label], label=label, spread=spread_of(numbers), nearest=list(values).index(label)
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """One answer, or one per criterion; `weights` are the criteria's weights by name."""

    answers: Scale | Labels
    weights: Mapping[str, float] | None
    reasoning: Reasoning

    @property
    def _fields(self) -> list[str]:
        return [self.answers.field] if self.weights is None else [*self.weights]

    def answer_format(self) -> str:
        """Return the answer format, to follow "Give" in a prompt."""
        if self.weights is None:
            return f'"{self.answers.field}": {self.answers.answer_format()}'
        return f"for each criterion, by its name ({_quoted(self.weights)}): {self.answers.answer_format()}"

    def schema(self) -> dict[str, Any]:
        return verdict_schema("rubric", {name: self.answers.schema() for name in self._fields}, self.reasoning)

    def scores(self, verdicts: Sequence[Verdict]) -> list[Score]:
        """Return the overall score of verdicts that fit the schema, then the score of each criterion under its name."""
        by_field = {name: self.answers.combined([verdict[name] for verdict in verdicts]) for name in self._fields}
        if self.weights is None:
            return [by_field[self.answers.field].score(verdicts, None)]
        overall = self._weighted_mean([criterion.number for criterion in by_field.values()])
        means = [self._weighted_mean([self.answers.number(verdict[name]) for name in by_field]) for verdict in verdicts]
        overall_score = Combined(number=overall, spread=spread_of(means), nearest=nearest_to(overall, means))
        return [overall_score.score(verdicts, None), *(field.score(verdicts, name) for name, field in by_field.items())]

    def _weighted_mean(self, numbers: Iterable[float | None]) -> float:
        """Return the weighted mean over the criteria, in their order. Raise StatisticsError if a number is missing."""
        return fmean([number for number in numbers if number is not None], [*(self.weights or {}).values()])


def spread_of(numbers: Sequence[float]) -> float | None:
    """Return the sample standard deviation; None for a single number."""
    return stdev(numbers) if len(numbers) > 1 else None


def nearest_to(number: float, numbers: Sequence[float]) -> int:
    """Return the index of the first closest number; distances are rounded so that float noise does not decide."""
    distances = [round(abs(candidate - number), 9) for candidate in numbers]
    return distances.index(min(distances))


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)
