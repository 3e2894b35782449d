"""What a person labels next on the page Review, what is asked and stored of it, and how far people agree with each
other; and what a draft becomes that a person accepts."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from evalflows.analysis.label_sampling import LOT_DIGITS, judge_errors
from evalflows.analysis.labels import Kind, alpha_among_people
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.stats.arrays import FloatArray
from evalflows.stats.label_choice import label_next
from evalflows.stats.proportions import normal_quantile, score_interval
from evalflows.store.labels import Added, add_label, finite_number
from evalflows.store.queries.review_items import GivenLabel, JudgedValues, Reviewed, ReviewItem
from evalflows.store.records import ExampleRow, derived_id, from_json, now
from evalflows.store.store import Store

QuestionKind = Literal["yes_no", "numbers", "labels", "pairs"]

MOST_BUTTONS = 11
"""The most whole numbers with a button each; other numbers are typed."""

_BINARY = ((0, 1), (0, 0), (1, 1))

Order = Literal["next", "random", "worst", "disagreement"]
ORDERS: tuple[Order, ...] = ("next", "random", "worst", "disagreement")
Others = Literal["too", "leave"]
OTHERS: tuple[Others, ...] = ("too", "leave")
"""Whether a person also labels what others have labelled, which shows how far people agree, or leaves it to them."""

MORE = 10

MOST_SECONDS = 3600.0
"""The longest time that is stored for a label."""

USD_PER_HOUR = "EVALFLOWS_LABEL_USD_PER_HOUR"
"""The setting that says what an hour of a person's time costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer that can be given with a key or a button."""

    token: str  # what the page sends
    key: str | None  # on the keyboard
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnQuestion:
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
        if self.kind != "numbers":
            return {"value": token}
        number = finite_number("value", token)
        if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
            raise InputError(f"value: got {number:g}, wanted {_range(self.low, self.high)}")
        return {"value": number}


def question_about(reviewed: Reviewed, asked: OwnQuestion) -> Question:
    """Return the question that a metric asks: as the person wants it, else as its judge answers it.

    Its text is what the person wants to be asked, else the metric's name. Raise InputError if neither says its kind, or
    if labels were wanted and none are known.
    """
    question = _question(reviewed, asked)
    usual = "Which answer is better?" if question.kind == "pairs" else reviewed.metric
    return replace(question, text=asked.text or usual)


def _question(reviewed: Reviewed, asked: OwnQuestion) -> Question:
    kind = "pairs" if reviewed.is_pairs else asked.kind or _kind(reviewed)
    if kind is None:
        raise InputError(
            f"metric: got {reviewed.metric!r}, which no judge gives, wanted a judge's metric, or kind: yes_no, "
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
    return next((known[label.data_type] for label in reviewed.labels if label.data_type in known), None)


def _labels(reviewed: Reviewed, asked: OwnQuestion) -> Question:
    by_judge = reviewed.judged.labels if reviewed.judged else ()
    known = asked.labels or sorted({*by_judge, *(label.label for label in reviewed.labels if label.label is not None)})
    if not known:
        raise InputError(
            f"metric: got {reviewed.metric!r}, which no judge gives, wanted a judge's metric, or at least two labels"
        )
    return Question(
        kind="labels",
        choices=[
            Choice(key=str(index) if index <= 9 else None, token=derived_id(name)[:12], name=name)
            for index, name in enumerate(dict.fromkeys(known), 1)
        ],
    )


def _numbers(judged: JudgedValues | None, asked: OwnQuestion) -> Question:
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
            choices = [
                Choice(key=str(number) if 0 <= number <= 9 else None, token=str(number), name=str(number))
                for number in range(int(low), int(high) + 1)
            ]
    return Question(kind="numbers", choices=choices, low=low, high=high)


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"at least {low:g}" if low is not None else f"at most {high:g}"
    return f"{low:g} to {high:g}"


@dataclass(frozen=True, kw_only=True)
class Review:
    """One person's labelling of one metric."""

    reviewed: Reviewed
    labeller: str
    order: Order = "next"
    others: Others = "too"
    skipped: Collection[str] = ()  # tokens of items
    given: str | None = None  # the item that the person is about to label

    @cached_property
    def mine(self) -> Mapping[str, GivenLabel]:
        """The person's labels by item, in the order in which they were given."""
        return {token_of(label): label for label in self.reviewed.labels if label.labeller == self.labeller}

    @cached_property
    def labelled(self) -> Collection[str]:
        """The items that anybody has labelled."""
        return {token_of(label) for label in self.reviewed.labels}

    @cached_property
    def left(self) -> Sequence[ReviewItem]:
        """The items that the person has yet to label."""
        done = self.mine.keys() if self.others == "too" else self.labelled
        return [item for item in self.reviewed.items if item.token not in done and item.token != self.given]

    @property
    def n_labelled(self) -> int:
        """How many items the person has labelled, or with `others` left out anybody."""
        total = len(self.reviewed.items) - len(self.left)
        return total if self.others == "too" else len({*self.mine, *filter(None, [self.given])})

    def item(self, token: str) -> ReviewItem:
        """Return the item of a token. Raise InputError if there is none."""
        for item in self.reviewed.items:
            if item.token == token:
                return item
        raise InputError(f"item: got {token!r}, wanted an item of this review")

    def next(self) -> ReviewItem | None:
        """Return the item to label next; None if all are labelled or skipped."""
        waiting = [item for item in self.left if item.token not in self.skipped]
        if not waiting:
            return None
        if self.order == "random":
            return waiting[0]
        if self.order == "disagreement":
            return max(waiting, key=lambda item: item.disagreement or 0.0)  # the first one of equals
        if self.order != "worst":
            return self._most_informative(waiting)
        judged = self.reviewed.judged
        sign = 1 if judged is None or judged.higher_is_better else -1
        return min(
            waiting, key=lambda item: (item.value is None, sign * (item.value or 0.0))
        )  # the first one of equals

    def before(self, token: str) -> str | None:
        """Return the token of what the person labelled before an item: the last one, if they have not labelled it."""
        given = [*self.mine, *(recent for recent in [self.given] if recent and recent not in self.mine)]
        index = given.index(token) if token in given else len(given)
        return given[index - 1] if index else None

    def drawn(self, token: str) -> Literal["fair", "uncertain"]:
        """Return whether an item's turn in the random order has come: all before it are labelled or skipped.

        Labels of such items are a random sample, for whatever reason they were chosen.
        """
        for item in self.reviewed.items:
            if item.token == token:
                return "fair"
            if item.token not in self.labelled and item.token not in self.skipped:
                return "uncertain"
        return "uncertain"

    def first_shown(self, token: str) -> Literal["left", "right"]:
        """Return which run of a pair is shown first: drawn by lot for each pair and person, and the same ever after."""
        lot = hashlib.sha256(f"{token} {self.labeller}".encode()).digest()
        return "left" if lot[0] % 2 else "right"

    def _most_informative(self, waiting: Sequence[ReviewItem]) -> ReviewItem:
        """Return one of the random sample, or the one of which the judge is least certain, in turn."""
        lots = [float(int(item.lot[:LOT_DIGITS], 16)) for item in waiting]
        drawn = label_next(lots, np.zeros(len(waiting), dtype=bool), _errors(waiting), 2)
        drawn_so_far = [label.drawn for token, label in self.mine.items() if token != self.given]
        if self.given:
            drawn_so_far.append(self.drawn(self.given))
        n_fair = sum(how != "uncertain" for how in drawn_so_far)
        wants_fair = n_fair <= len(drawn_so_far) - n_fair
        return waiting[next((item.place for item in drawn if item.fair == wants_fair), drawn[0].place)]


def known_to(n: int) -> float | None:
    """Return half the width of the 95 % interval (Wilson 1927) of a share of n labels, at its widest: half of them."""
    if n == 0:
        return None
    low, high = score_interval(0.5, n, normal_quantile(0.95))
    return (high - low) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a person took for a label, and what that cost."""

    seconds: float | None = None
    usd_per_hour: float | None = None

    @classmethod
    def of(cls, seconds: str | None, usd_per_hour: str | None) -> "Effort":
        """Read both. Raise InputError for what is no number of at least 0."""
        took = None if not seconds else min(_at_least_0("seconds", seconds), MOST_SECONDS)
        return cls(
            seconds=None if took is None else round(took, 1),
            usd_per_hour=None if not usd_per_hour else _at_least_0(USD_PER_HOUR, usd_per_hour),
        )

    @property
    def columns(self) -> dict[str, float]:
        """Both as columns of a label, without what is not known."""
        if self.seconds is None:
            return {}
        cost = {} if self.usd_per_hour is None else {"cost_usd": self.seconds / 3600 * self.usd_per_hour}
        return {"seconds": self.seconds, **cost}


_NO_EFFORT = Effort()


def _at_least_0(name: str, value: str) -> float:
    if (number := finite_number(name, value)) < 0:
        raise InputError(f"{name}: got {number:g}, wanted at least 0")
    return number


@dataclass(frozen=True, slots=True)
class Drawn:
    """How a trace was chosen: the label's columns."""

    drawn: str | None
    drawn_from: str | None  # what the random order is of; SELECTION is no sample of production


def give_label(
    store: Store,
    review: Review,
    question: Question,
    token: str,
    answer: str,
    comment: str | None,
    *,
    effort: Effort = _NO_EFFORT,
    drawn: Drawn | None = None,
) -> Added:
    """Store what a person says of an item. `drawn` says how it was chosen, if the review has not all items.

    Raise InputError for another item or a wrong answer.
    """
    item, reviewed = review.item(token), review.reviewed
    of_run = {"experiment": item.experiment_id, "example_id": item.example_id, "repetition": item.repetition}
    row: dict[str, Any] = {
        **({"trace_id": item.run_id} if reviewed.is_traces else of_run),
        **effort.columns,
        "metric": reviewed.metric,
        "labeller": review.labeller,
        "comment": comment,
        "labelled_at": now().isoformat(),
        **asdict(drawn or Drawn(review.drawn(token), None)),
        "order": review.order,
        "question": question.text,
    }
    said = question.label(answer)
    row |= _of_pair(item, review.first_shown(token), str(said["value"])) if item.other_run_id else said
    batch = derived_id("review", reviewed.subject_id, reviewed.metric, review.labeller)  # of all that the person gives
    return add_label(store, batch, row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """An item that people have labelled differently."""

    item: ReviewItem
    labels: Sequence[GivenLabel]


def disagreements(reviewed: Reviewed) -> list[Disagreement]:
    """Return the items with different labels, in random order."""
    by_item = grouped((token_of(label), label) for label in reviewed.labels)
    differing = [item for item in reviewed.items if len({(row.value, row.label) for row in by_item[item.token]}) > 1]
    return [Disagreement(item=item, labels=by_item[item.token]) for item in differing]


def token_of(label: GivenLabel) -> str:
    """Return the token of a label's item."""
    return derived_id("review", label.run_id, label.other_run_id)


def _of_pair(item: ReviewItem, first: str, side: str) -> dict[str, Any]:
    """Return the columns of a label of two runs. Which answer was shown first is stored with it."""
    shown = (item.experiment_id, item.other_experiment_id)
    by_side = dict(zip(("first", "second"), shown if first == "left" else shown[::-1], strict=True))
    return {"other_experiment": item.other_experiment_id, "winner": by_side.get(side, "tie"), "shown_first": first}


def _errors(items: Sequence[ReviewItem]) -> FloatArray:
    columns = ([item.value for item in items], [item.spread for item in items], [item.other for item in items])
    values, spreads, others = (np.array([np.nan if cell is None else cell for cell in column]) for column in columns)
    return judge_errors(values, spreads, others)


def people_agreement(reviewed: Reviewed, kind: Kind) -> dict[str, Any] | None:
    """Return Krippendorff's alpha of the labellers, as `labels agreement` computes it; None if there is only one.

    If there is a random sample, it rests on that.
    """
    known = {item.token: item.together for item in reviewed.items}
    labels = [label for label in reviewed.labels if token_of(label) in known]
    counted = [label for label in labels if label.is_fair] or labels
    if len({label.labeller for label in counted}) < 2:
        return None
    frame = pd.DataFrame(
        [(token_of(label), label.labeller, label.value, label.label) for label in counted],
        columns=["unit", "labeller", "value", "label"],
    )
    return alpha_among_people(frame, pd.Series(known), kind, confidence_level=0.95)


def accepted(draft: ExampleRow, edited: Mapping[str, Any], by: str) -> dict[str, Any]:
    """Return the fields that change as a person accepts a draft, with edited columns or as it is.

    Who wrote it stays in its metadata; beside it stand who accepted it and, if it was edited, what had been drafted.
    """
    before = {column: from_json(getattr(draft, column)) for column in edited}
    changed = {column: content for column, content in edited.items() if content != before[column]}
    metadata = {name: value for name, value in from_json(draft.metadata).items() if name != "draft"}
    metadata |= {"accepted_by": by} | ({"drafted": {column: before[column] for column in changed}} if changed else {})
    return {**changed, "metadata": metadata}
