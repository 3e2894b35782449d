"""What a review's address says: the metric, who labels, in which order, and what is shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalflows.analysis.human_labels.questions import Asked, QuestionKind
from evalflows.analysis.human_labels.review import ORDERS, OTHERS, Order, Others, Review
from evalflows.pages.links import Value, query_text
from evalflows.pages.query import Query
from evalflows.specs.errors import InputError
from evalflows.store.ingest.label_values import finite_number
from evalflows.store.parquet import Store
from evalflows.store.queries.review_items import reviewed

KINDS: tuple[QuestionKind, ...] = ("yes_no", "numbers", "labels")
LONGEST_NAME = 100
MOST_SKIPPED = 50
"""The last skipped items that the address has; earlier ones are shown again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """The parameters of a review."""

    subject: str
    metric: str
    labeller: str
    order: Order
    others: Others
    shows_reference: bool
    asked: Asked
    skipped: Sequence[str]

    @classmethod
    def of(cls, query: Query) -> "ReviewSettings":
        """Read the parameters. Raise InputError if one is wrong or lacks."""
        kind = query.text("kind")
        labels = [label.strip() for text in query.all("labels") for label in text.split(",")]
        return cls(
            subject=query.wanted("subject"),
            metric=query.wanted("metric").strip(),
            labeller=_name(query),
            order=query.choice("order", ORDERS, "next"),
            others=query.choice("others", OTHERS, "too"),
            shows_reference=query.text("reference") is not None,
            asked=Asked(
                text=query.text("question"),
                kind=query.choice("kind", KINDS, "yes_no") if kind else None,
                low=_number(query, "low"),
                high=_number(query, "high"),
                labels=[label for label in labels if label],
            ),
            skipped=query.all("skip")[-MOST_SKIPPED:],
        )

    def review(self, store: Store) -> Review:
        """Return the review that they mean. Raise InputError if the store does not have it."""
        return Review(
            reviewed=store.steady(lambda: reviewed(store, self.subject, self.metric)),
            labeller=self.labeller,
            order=self.order,
            others=self.others,
            skipped=self.skipped,
        )

    def link(self, *, skip: str | None = None, item: str | None = None, restart: bool = False) -> str:
        """Return the address of another item, relative to the page, so that the page does not name the experiment."""
        skipped = [] if restart else [one for one in self.skipped if one != skip] + ([skip] if skip else [])
        return f"?{query_text(**self._values(), skip=skipped[-MOST_SKIPPED:], item=item)}"

    def _values(self) -> dict[str, Value]:
        asked = self.asked
        return {
            "metric": self.metric,
            "by": self.labeller,
            "order": self.order,
            "others": self.others,
            "reference": "yes" if self.shows_reference else None,
            "kind": asked.kind,
            "low": None if asked.low is None else f"{asked.low:g}",
            "high": None if asked.high is None else f"{asked.high:g}",
            "labels": list(asked.labels),
            "question": asked.text,
        }


def _name(query: Query) -> str:
    name = (query.text("by") or "").strip()
    if not name or len(name) > LONGEST_NAME:
        got = f"{len(name)} characters" if name else "none"
        raise InputError(f"by: got {got}, wanted your name, of at most {LONGEST_NAME} characters")
    return name


def _number(query: Query, name: str) -> float | None:
    text = query.text(name)
    return None if text is None else finite_number(name, text)
