"""A judge's score sheet: what it is asked to fill in, and the scores that several fillings make."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any, Literal, TypeVar

from evaluators.score import Score

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


def _majority(said: Sequence[Said]) -> Said:
    """What was said most often; of several, what was said first."""
    return Counter(said).most_common(1)[0][0]


_COMBINED: Mapping[Combine, Callable[[Sequence[int]], float]] = {
    "mean": fmean,
    "median": median,
    "majority": _majority,
}


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
        number = float(_COMBINED[self.combine](said))
        return Combined(number=number, spread=_spread(said), nearest=_nearest(said, number))


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
            number=self.numbers[label], label=label, spread=_spread(numbers), nearest=list(said).index(label)
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
        """A model writes the fields in their order: from reasoning that comes first, the verdict follows."""
        why: dict[str, Any] = {} if self.reasoning == "none" else {"reasoning": {"type": "string"}}
        fields = {name: self.answers.schema() for name in self._fields}
        fields = fields | why if self.reasoning == "after" else why | fields
        return {
            "title": "rubric",
            "type": "object",
            "properties": fields,
            "required": [*fields],
            "additionalProperties": False,
        }

    def scores(self, verdicts: Sequence[Verdict]) -> list[Score]:
        """The score over some verdicts, each of the schema; behind it one of each criterion, under its name."""
        each = {name: self.answers.combined([verdict[name] for verdict in verdicts]) for name in self._fields}
        if self.weights is None:
            return [each[self.answers.field].score(verdicts, None)]
        overall = self._weighed([combined.number for combined in each.values()])
        said = [self._weighed([self.answers.number(verdict[name]) for name in each]) for verdict in verdicts]
        whole = Combined(number=overall, spread=_spread(said), nearest=_nearest(said, overall))
        return [whole.score(verdicts, None), *(one.score(verdicts, name) for name, one in each.items())]

    def _weighed(self, numbers: Iterable[float | None]) -> float:
        """The weighted mean of a number of each criterion, in their order. Raises where one has none."""
        return fmean([number for number in numbers if number is not None], [*(self.weights or {}).values()])


def _spread(numbers: Sequence[float]) -> float | None:
    return stdev(numbers) if len(numbers) > 1 else None


def _nearest(numbers: Sequence[float], number: float) -> int:
    """The first of the nearest; rounded, so that the last bit of a float does not choose."""
    distances = [round(abs(one - number), 9) for one in numbers]
    return distances.index(min(distances))


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)
