"""One answer, or two, for a person to label: nothing on the page tells which system gave it, or what a judge said."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalflows.analysis.human_labels.questions import Question, question_about
from evalflows.analysis.human_labels.review import Review
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.pages.review_settings import ReviewSettings
from evalflows.specs.errors import InputError
from evalflows.store.queries.review_items import (
    GivenLabel,
    ItemTexts,
    ReviewItem,
    item_texts,
    review_metrics,
    review_subject,
)

MOST_NAMED = 10
"""Metrics in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """An item as it is shown. It names no run and no experiment."""

    token: str
    inputs: str | None
    reference: str | None  # None if it is not to be shown, too
    answers: Sequence[tuple[str, str | None]]  # headings and answers, in the order drawn
    answered: str | None  # the token of the choice, or the number, that the person gave before
    comment: str | None


def review_page(site: Site, query: Query) -> Page:
    """The next item of a review, or the one that the address names."""
    _check(site, query)
    settings = ReviewSettings.of(query)
    review = settings.review(site.store)
    question = question_about(review.reviewed, settings.asked)
    named = query.text("item")
    item = review.item(named) if named else review.next()
    shown = None if item is None else _shown(site, review, question, settings, item)
    body = render(
        "review.html",
        site,
        shown=shown,
        question=question,
        settings=settings,
        review=review,
        n_skipped=sum(item.token in settings.skipped for item in review.left),
        before=review.before(item.token if item else ""),
    )
    return Page(title=f"Review: {settings.metric}", section="review", body=body)


def _check(site: Site, query: Query) -> None:
    """Raise InputError for what the other parameters depend on first: an unknown experiment, then a lacking metric."""
    subject, _ = review_subject(site.store, query.wanted("subject"))
    if query.text("metric") is None:
        known = ", ".join(review_metrics(site.store, subject)[:MOST_NAMED])
        raise InputError(f"metric: got none, wanted one{f' of {known}, or another' if known else ''} that people label")


def _shown(site: Site, review: Review, question: Question, settings: ReviewSettings, item: ReviewItem) -> _Shown:
    texts = item_texts(site.store, item)
    before = review.mine.get(item.token)
    return _Shown(
        token=item.token,
        inputs=texts.inputs,
        reference=texts.reference_outputs if settings.shows_reference else None,
        answers=_answers(review, item, texts),
        answered=None if before is None else _answered(question, before, review.first_shown(item.token)),
        comment=None if before is None else before.comment,
    )


def _answers(review: Review, item: ReviewItem, texts: ItemTexts) -> Sequence[tuple[str, str | None]]:
    if item.other_run_id is None:
        return [("Answer", texts.outputs)]
    both = (texts.outputs, texts.other_outputs)
    first, second = both if review.first_shown(item.token) == "left" else both[::-1]
    return [("Answer a", first), ("Answer b", second)]


def _answered(question: Question, given: GivenLabel, first: str) -> str | None:
    """Return what the page would send to give the same label again."""
    if question.kind == "pairs":
        return "tie" if given.label == "tie" else "first" if given.label == first else "second"
    if question.kind == "labels":
        return next((choice.token for choice in question.choices if choice.name == given.label), None)
    if given.value is None:
        return None
    return ("no", "yes")[given.value == 1] if question.kind == "yes_no" else f"{given.value:g}"
