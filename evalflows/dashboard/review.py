"""One answer, two, or a trace of production, for a person to label: nothing on the page tells which system gave it, or
what a judge said.

Where a review starts, and what its address says.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from evalflows.analysis import reviewing
from evalflows.dashboard.links import PROOF, Value, query_text
from evalflows.dashboard.production import day_in, json_of
from evalflows.dashboard.rendering import Page, Query, Site, render
from evalflows.reports.datasets import dataset_names, drafts_by_dataset
from evalflows.reports.judges import figures_of, label_text
from evalflows.reports.names import names_apart
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.store.labels import SELECTION, finite_number
from evalflows.store.observations import last_owner
from evalflows.store.queries import review_items
from evalflows.store.queries.review_items import TRACES
from evalflows.store.queries.traces import newest_traces, observations_of_trace
from evalflows.store.sql import ask
from evalflows.store.store import Store
from evalflows.telemetry.views import in_depth, trace_view

KINDS: tuple[reviewing.QuestionKind, ...] = ("yes_no", "numbers", "labels")
LONGEST_NAME = 100
MOST_SKIPPED = 50
"""The last skipped items that the address has; earlier ones are shown again."""

MOST_NAMED = 10
"""Metrics in a message."""

MOST_DISAGREEMENTS = 50
MOST_TRACES = 500

_NAMES = "select experiment_id, name from experiments where is_one_of(experiment_id, $1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """The parameters of a review."""

    subject: str
    metric: str
    labeller: str
    order: reviewing.Order
    others: reviewing.Others
    shows_reference: bool
    asked: reviewing.OwnQuestion
    skipped: Sequence[str]
    dataset: str | None  # to which examples are added
    given: str | None = None  # the item that is about to be labelled: the page is that of the next one
    where: str | None = None  # a condition in SQL on traces, and the day from which on they began
    since: str | None = None
    proof: str | None = None  # of the condition

    @classmethod
    def of(cls, query: Query) -> "ReviewSettings":
        """Read the parameters. Raise InputError if one is wrong or lacks."""
        kind = query.text("kind")
        labels = [label.strip() for text in query.all("labels") for label in text.split(",")]
        return cls(
            subject=query.wanted("subject"),
            metric=query.wanted("metric").strip(),
            labeller=persons_name(query.text("by")),
            order=query.choice("order", reviewing.ORDERS, "next"),
            others=query.choice("others", reviewing.OTHERS, "too"),
            shows_reference=query.text("reference") is not None,
            asked=reviewing.OwnQuestion(
                text=query.text("question"),
                kind=query.choice("kind", KINDS, "yes_no") if kind else None,
                low=_number(query, "low"),
                high=_number(query, "high"),
                labels=[label for label in labels if label],
            ),
            skipped=query.all("skip")[-MOST_SKIPPED:],
            dataset=query.text("dataset"),
            given=query.text("given"),
            where=query.text("where"),
            since=query.text("since"),
            proof=query.text(PROOF),
        )

    def review(self, store: Store, traces: Sequence[str] = ()) -> reviewing.Review:
        """Return the review that they mean, of traces one of these. Raise InputError if the store does not have it."""

        def found() -> review_items.Reviewed:
            if self.subject == TRACES:
                return review_items.reviewed_traces(store, self.metric, traces)
            return review_items.reviewed(store, self.subject, self.metric)

        return reviewing.Review(
            reviewed=store.steady(found),
            labeller=self.labeller,
            order=self.order,
            others=self.others,
            skipped=self.skipped,
            given=self.given,
        )

    def link(self, *, skip: str | None = None, item: str | None = None, restart: bool = False, **more: Value) -> str:
        """Return the address of another item, relative to the page, so that the page does not name the experiment."""
        skipped = [] if restart else [other for other in self.skipped if other != skip] + ([skip] if skip else [])
        return f"?{query_text(**self._values(), skip=skipped[-MOST_SKIPPED:], item=item, **more)}"

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
            "dataset": self.dataset,
            "where": self.where,
            "since": self.since,
            PROOF: self.proof,
        }


def persons_name(given: str | None) -> str:
    """Return who gives something. Raise InputError for no name, and for one that is too long."""
    name = (given or "").strip()
    if not name or len(name) > LONGEST_NAME:
        got = f"{len(name)} characters" if name else "none"
        raise InputError(f"by: got {got}, wanted your name, of at most {LONGEST_NAME} characters")
    return name


def _number(query: Query, name: str) -> float | None:
    text = query.text(name)
    return None if text is None else finite_number(name, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """An item as it is shown. It names no run and no experiment."""

    token: str
    inputs: str | None
    attachments: str | None
    reference: str | None  # None if it is not to be shown, too
    answers: Sequence[tuple[str, str | None]]  # headings and answers, in the order drawn
    answered: str | None  # the token of the choice, or the number, that the person gave before
    comment: str | None
    drawn: str
    trace: str | None = None  # its id
    drawn_from: str | None = None  # of a trace: what the random order is of
    steps: Sequence[tuple[str, str | None, str | None]] = ()  # of a trace: names, inputs and outputs


def review_page(site: Site, query: Query) -> Page:
    """Return the next item of a review, or the one that the address names."""
    _check(site, query)
    settings = ReviewSettings.of(query)
    review = settings.review(site.store, _traces(site, settings))
    question = reviewing.question_about(review.reviewed, settings.asked)
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
        datasets=dataset_names(site.store),
        n_labelled=review.n_labelled,
        gain=_gain(review.n_labelled, len(review.reviewed.items)),
    )
    return Page(title=f"Review: {settings.metric}", section="review", body=body)


def _gain(n: int, total: int) -> str | None:
    """Say how exactly labels so far tell a share, such as that of items on which people agree with the judge, and what
    more of them bring; None if all are labelled."""
    more, now = min(reviewing.MORE, total - n), reviewing.known_to(n)
    if not more:
        return None
    after = f"±{reviewing.known_to(n + more):.2f}"
    return (
        f"{more} labels estimate a share to within {after}"
        if now is None
        else f"{n} estimate a share to within ±{now:.2f}, {more} more to within {after}"
    )


def _check(site: Site, query: Query) -> None:
    """Raise InputError for what the other parameters depend on first: an unknown experiment, then a lacking metric."""
    subject = _subject(site.store, query.wanted("subject"))
    if query.text("metric") is None:
        known = ", ".join(review_items.review_metrics(site.store, subject)[:MOST_NAMED])
        raise InputError(f"metric: got none, wanted one{f' of {known}, or another' if known else ''} that people label")


def _subject(store: Store, reference: str) -> str:
    return TRACES if reference == TRACES else review_items.review_subject(store, reference)[0]


def _traces(site: Site, settings: ReviewSettings) -> list[str]:
    """Return the newest traces that meet a review's condition, which is SQL and run only if a page of ours sent it."""
    if settings.subject != TRACES:
        return []
    proofs, where = site.links.proofs, settings.where
    if where is not None and not (proofs is not None and proofs.hold(settings.proof, where)):
        raise InputError("where: this condition came with the address and is not run; start the review on its page")
    rows = partial(site.queries.rows, stop=site.stop) if site.queries and where else None
    return newest_traces(site.store, where, day_in(_since(site.store, settings)), MOST_TRACES, rows)


def _since(store: Store, settings: ReviewSettings) -> str | None:
    return settings.since or last_owner(store, "observations")  # all days would take seconds and gigabytes


def _drawn_from(store: Store, settings: ReviewSettings, n_traces: int) -> str:
    """Return what the order of traces is of: all since a day, or a selection, which is no random sample."""
    is_selection = settings.where is not None or n_traces >= MOST_TRACES
    return SELECTION if is_selection else f"traces since {_since(store, settings)}"


def _shown(
    site: Site,
    review: reviewing.Review,
    question: reviewing.Question,
    settings: ReviewSettings,
    item: review_items.ReviewItem,
) -> _Shown:
    before = review.mine.get(item.token)
    answered = None if before is None else _answered(question, before, review.first_shown(item.token))
    said = partial(
        _Shown,
        token=item.token,
        answered=answered,
        comment=None if before is None else before.comment,
        drawn=review.drawn(item.token),
    )
    if review.reviewed.is_traces:
        trace = trace_view(observations_of_trace(site.store, item.run_id))
        steps = [view for depth, view in in_depth(trace.observations) if depth]
        return said(
            inputs=json_of(trace.input),
            attachments=None,
            reference=None,
            answers=[("Answer", json_of(trace.output))],
            trace=item.run_id,
            drawn_from=_drawn_from(site.store, settings, len(review.reviewed.items)),
            steps=[(f"{view.type} {view.name}", json_of(view.input), json_of(view.output)) for view in steps],
        )
    texts = review_items.item_texts(site.store, item)
    return said(
        inputs=texts.inputs,
        attachments=texts.attachments,
        reference=texts.reference_outputs if settings.shows_reference else None,
        answers=_answers(review, item, texts),
    )


def _answers(
    review: reviewing.Review, item: review_items.ReviewItem, texts: review_items.ItemTexts
) -> Sequence[tuple[str, str | None]]:
    if item.other_run_id is None:
        return [("Answer", texts.outputs)]
    both = (texts.outputs, texts.other_outputs)
    first, second = both if review.first_shown(item.token) == "left" else both[::-1]
    return [("Answer a", first), ("Answer b", second)]


def _answered(question: reviewing.Question, given: review_items.GivenLabel, first: str) -> str | None:
    """Return what the page would send to give the same label again."""
    if question.kind == "pairs":
        return "tie" if given.label == "tie" else "first" if given.label == first else "second"
    if question.kind == "labels":
        return next((choice.token for choice in question.choices if choice.name == given.label), None)
    if given.value is None:
        return None
    return ("no", "yes")[given.value == 1] if question.kind == "yes_no" else f"{given.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metric:
    """What people have said of one metric."""

    metric: str
    n_items: int
    sides: Mapping[str, str]  # names of the experiments, to tell the sides of pairs
    agreement: tuple[str, str] | None  # alpha, and its interval or why it has none; None with one labeller only
    differing: Sequence[reviewing.Disagreement]


def review_start_page(site: Site, query: Query) -> Page:
    """Return the forms that start a review: of one experiment or comparison if the address names it."""
    reference, metric = query.text("subject"), query.text("metric")
    subject = None if reference is None else _subject(site.store, reference)
    body = render(
        "review_start.html",
        site,
        subjects=review_items.reviewable(site.store),
        waiting=[]
        if subject
        else [(metric, _gain(metric.n_labelled, metric.n_items)) for metric in review_items.judged_metrics(site.store)],
        subject=subject,
        metrics=[] if subject is None else review_items.review_metrics(site.store, subject),
        labelled=review_items.labelled_subjects(site.store, subject),
        shown=None if subject is None or metric is None else _metric(site.store, subject, metric),
        metric=metric,
        most=MOST_DISAGREEMENTS,
        most_traces=MOST_TRACES,
        where=query.text("where"),
        since=query.text("since") or (last_owner(site.store, "observations") if subject == TRACES else None),
        proof=PROOF,
        by=query.text("by"),
        datasets=dataset_names(site.store),
        drafts={} if subject else drafts_by_dataset(site.store),
        label_text=label_text,
    )
    return Page(title="Review", section="review", body=body)


def _metric(store: Store, subject: str, metric: str) -> _Metric:
    found = (
        review_items.reviewed_traces(store, metric, review_items.labelled_traces(store, metric))
        if subject == TRACES
        else review_items.reviewed(store, subject, metric)
    )
    kind = reviewing.question_about(
        found, reviewing.OwnQuestion(kind=None if found.judged or found.labels else "yes_no")
    ).kind
    alpha = reviewing.people_agreement(found, kind)
    return _Metric(
        metric=metric,
        n_items=len(found.items),
        sides=_sides(store, found) if found.is_pairs else {},
        agreement=None if alpha is None else figures_of(alpha, "alpha"),
        differing=reviewing.disagreements(found),
    )


def _sides(store: Store, found: review_items.Reviewed) -> Mapping[str, str]:
    both = {side for item in found.items for side in (item.experiment_id, item.other_experiment_id) if side}
    (rows,) = ask(store, (_NAMES, [sorted(both)]))
    return names_apart(store, dict(rows))
