"""What a person is asked about an answer on the page Review, and the label that an answer to it means."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from evalflows.specs.errors import InputError
from evalflows.store.ingest.label_values import finite_number
from evalflows.store.queries.review_items import JudgedValues, Reviewed
from evalflows.store.records import derived_id

QuestionKind = Literal["yes_no", "numbers", "labels", "pairs"]

MOST_BUTTONS = 11
"""The most whole numbers with a button each; other numbers are typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer that can be given with a key or a button."""

    token: str  # what the page sends
    key: str | None  # on the keyboard
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person wants to be asked, where it does not follow from a judge."""

    text: str | None = None
    kind: QuestionKind | None = None
    low: float | None = None
    high: float | None = None
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """How an answer is given: one of the choices, or a number from `low` to `high` where there are none."""

    kind: QuestionKind
    choices: Sequence[Choice]
    text: str = ""  # what the person reads
    low: float | None = None
    high: float | None = None

    def label(self, token: str) -> dict[str, Any]:
        """Return the column of a label file, and its value, that an answer means. Raise InputError for a wrong one."""
        known = {choice.token: choice.name for choice in self.choices}
        if self.choices and token not in known:
            wanted = ", ".join(choice.name for choice in self.choices)
            raise InputError(f"value: got {token!r}, wanted one of: {wanted}")
        if self.kind == "labels":
            return {"label": known[token]}
        return {"value": self._number(token) if self.kind == "numbers" else token}

    def _number(self, token: str) -> float:
        number = finite_number("value", token)
        if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
            raise InputError(f"value: got {number:g}, wanted {_range(self.low, self.high)}")
        return number


def question_about(reviewed: Reviewed, asked: Asked) -> Question:
    """Return the question that a metric asks: as the person wants it, else as its judge answers it.

    Its text is what the person wants to be asked, else the metric's name. Raise InputError if neither says its kind, or
    if labels were wanted and none are known.
    """
    question = _question(reviewed, asked)
    usual = "Which answer is better?" if question.kind == "pairs" else reviewed.metric
    return replace(question, text=asked.text or usual)


def _question(reviewed: Reviewed, asked: Asked) -> Question:
    kind = "pairs" if reviewed.is_pairs else asked.kind or _kind(reviewed)
    if kind is None:
        raise InputError(
            f"metric: got {reviewed.metric!r}, which no judge has, wanted one that a judge has, or kind: yes_no, "
            f"numbers or labels"
        )
    if kind == "pairs":
        return Question(
            kind=kind, choices=_chosen(("a", "first", "answer a"), ("b", "second", "answer b"), ("t", "tie", "tie"))
        )
    if kind == "yes_no":
        return Question(kind=kind, choices=_chosen(("y", "yes", "yes"), ("n", "no", "no")))
    return _labels(reviewed, asked) if kind == "labels" else _numbers(reviewed.judged, asked)


def _chosen(*choices: tuple[str, str, str]) -> list[Choice]:
    return [Choice(key=key, token=token, name=name) for key, token, name in choices]


def _kind(reviewed: Reviewed) -> QuestionKind | None:
    if (judged := reviewed.judged) is not None:
        if judged.labels:
            return "labels"
        is_binary = judged.data_type is None and judged.are_whole and (judged.low, judged.high) in _BINARY
        return "yes_no" if judged.data_type == "BOOLEAN" or is_binary else "numbers"
    known: dict[str | None, QuestionKind] = {"BOOLEAN": "yes_no", "NUMERIC": "numbers", "CATEGORICAL": "labels"}
    return next((known[one.data_type] for one in reviewed.labels if one.data_type in known), None)


_BINARY = ((0, 1), (0, 0), (1, 1))


def _labels(reviewed: Reviewed, asked: Asked) -> Question:
    by_judge = reviewed.judged.labels if reviewed.judged else ()
    known = asked.labels or sorted({*by_judge, *(one.label for one in reviewed.labels if one.label is not None)})
    if not known:
        raise InputError(
            f"metric: got {reviewed.metric!r}, which no judge has, wanted one that a judge has, or at least two labels"
        )
    return Question(
        kind="labels",
        choices=[
            Choice(key=str(place) if place <= 9 else None, token=derived_id(name)[:12], name=name)
            for place, name in enumerate(dict.fromkeys(known), 1)
        ],
    )


def _numbers(judged: JudgedValues | None, asked: Asked) -> Question:
    low, high = (judged and judged.declared) or (None, None)
    is_whole = judged is None or judged.are_whole
    if low is None and judged is not None and is_whole:
        low, high = judged.low, judged.high
    low, high = (asked.low if asked.low is not None else low), (asked.high if asked.high is not None else high)
    choices: Sequence[Choice] = ()
    if low is not None and high is not None:
        if low >= high:
            raise InputError(f"low, high: got {low:g} and {high:g}, wanted the lower one first")
        if is_whole and low == int(low) and high == int(high) and high - low < MOST_BUTTONS:
            choices = [_number_choice(number) for number in range(int(low), int(high) + 1)]
    return Question(kind="numbers", choices=choices, low=low, high=high)


def _number_choice(number: int) -> Choice:
    return Choice(key=str(number) if 0 <= number <= 9 else None, token=str(number), name=str(number))


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"at least {low:g}" if low is not None else f"at most {high:g}"
    return f"{low:g} to {high:g}"
