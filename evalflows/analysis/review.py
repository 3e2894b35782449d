"""What a person labels next on the page Review, what is stored of it, and where people disagree."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from evalflows.analysis.human_labels.label_next import LOT_DIGITS, judge_errors
from evalflows.analysis.human_labels.questions import Question
from evalflows.specs.errors import InputError
from evalflows.stats.arrays import FloatArray
from evalflows.stats.rater_agreement.label_next import label_next
from evalflows.store.ingest.review_labels import Added, add_label
from evalflows.store.parquet import Store
from evalflows.store.queries.review_items import GivenLabel, Reviewed, ReviewItem
from evalflows.store.records import derived_id, now

Order = Literal["next", "random", "worst"]
ORDERS: tuple[Order, ...] = ("next", "random", "worst")
Others = Literal["too", "leave"]
OTHERS: tuple[Others, ...] = ("too", "leave")
"""Whether a person also labels what others have labelled, which shows how far people agree, or leaves it to them."""


@dataclass(frozen=True, kw_only=True)
class Review:
    """One person's labelling of one metric."""

    reviewed: Reviewed
    labeller: str
    order: Order = "next"
    others: Others = "too"
    skipped: Collection[str] = ()  # tokens of items

    @cached_property
    def mine(self) -> Mapping[str, GivenLabel]:
        """The person's labels by item, in the order in which they were given."""
        return {token_of(one): one for one in self.reviewed.labels if one.labeller == self.labeller}

    @cached_property
    def labelled(self) -> Collection[str]:
        """The items that anybody has labelled."""
        return {token_of(one) for one in self.reviewed.labels}

    @cached_property
    def left(self) -> Sequence[ReviewItem]:
        """The items that the person has yet to label."""
        done = self.mine.keys() if self.others == "too" else self.labelled
        return [item for item in self.reviewed.items if item.token not in done]

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
        return _worst(waiting, self.reviewed) if self.order == "worst" else self._most_informative(waiting)

    def before(self, token: str) -> str | None:
        """Return the token of what the person labelled before an item: the last one, if they have not labelled it."""
        given = list(self.mine)
        place = given.index(token) if token in given else len(given)
        return given[place - 1] if place else None

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
        n_fair = sum(one.drawn != "uncertain" for one in self.mine.values())
        wants_fair = n_fair <= len(self.mine) - n_fair
        return waiting[next((one.place for one in drawn if one.fair == wants_fair), drawn[0].place)]


def give_label(store: Store, review: Review, question: Question, token: str, answer: str, comment: str | None) -> Added:
    """Store what a person says of an item. Raise InputError for another item or a wrong answer."""
    item, reviewed = review.item(token), review.reviewed
    row: dict[str, Any] = {
        "experiment": item.experiment_id,
        "example_id": item.example_id,
        "repetition": item.repetition,
        "metric": reviewed.metric,
        "labeller": review.labeller,
        "comment": comment,
        "labelled_at": now().isoformat(),
        "drawn": review.drawn(token),
        "order": review.order,
        "question": question.text,
    }
    said = question.label(answer)
    row |= _of_pair(item, review.first_shown(token), str(said["value"])) if item.other_run_id else said
    return add_label(store, review_batch(reviewed, review.labeller), row)


def review_batch(reviewed: Reviewed, labeller: str) -> str:
    """Return the id of the batch of all labels of a metric that one person gives."""
    return derived_id("review", reviewed.subject_id, reviewed.metric, labeller)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """An item that people have labelled differently."""

    item: ReviewItem
    labels: Sequence[GivenLabel]


def disagreements(reviewed: Reviewed) -> list[Disagreement]:
    """Return the items with different labels, in random order."""
    by_item: defaultdict[str, list[GivenLabel]] = defaultdict(list)
    for one in reviewed.labels:
        by_item[token_of(one)].append(one)
    differing = [item for item in reviewed.items if len({(one.value, one.label) for one in by_item[item.token]}) > 1]
    return [Disagreement(item=item, labels=by_item[item.token]) for item in differing]


def token_of(label: GivenLabel) -> str:
    """Return the token of a label's item."""
    return derived_id("review", label.run_id, label.other_run_id)


def _of_pair(item: ReviewItem, first: str, side: str) -> dict[str, Any]:
    """Return the columns of a label of two runs. Which answer was shown first is stored with it."""
    shown = (item.experiment_id, item.other_experiment_id)
    by_side = dict(zip(("first", "second"), shown if first == "left" else shown[::-1], strict=True))
    return {"other_experiment": item.other_experiment_id, "winner": by_side.get(side, "tie"), "shown_first": first}


def _worst(waiting: Sequence[ReviewItem], reviewed: Reviewed) -> ReviewItem:
    sign = 1 if reviewed.judged is None or reviewed.judged.higher_is_better else -1
    return min(waiting, key=lambda item: (item.value is None, sign * (item.value or 0.0)))  # the first one of equals


def _errors(items: Sequence[ReviewItem]) -> FloatArray:
    columns = ([item.value for item in items], [item.spread for item in items], [item.other for item in items])
    values, spreads, others = (np.array([np.nan if one is None else one for one in column]) for column in columns)
    return judge_errors(values, spreads, others)
