"""Where a review starts: what to label, who labels it in which order, and how far people have come and agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.analysis.human_labels.people_agreement import people_agreement
from evalflows.analysis.human_labels.questions import Asked, question_about
from evalflows.analysis.human_labels.review import Disagreement, disagreements
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.figures import estimate
from evalflows.reports.label_texts import label_text
from evalflows.reports.names_apart import names_apart
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.labelled_subjects import labelled_subjects, reviewable
from evalflows.store.queries.review_items import Reviewed, review_metrics, review_subject, reviewed

MOST_DISAGREEMENTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metric:
    """What people have said of one metric."""

    metric: str
    n_items: int
    sides: Mapping[str, str]  # names of the experiments, to tell the sides of pairs
    agreement: tuple[str, str] | None  # alpha, and its interval or why it has none; None with one labeller only
    differing: Sequence[Disagreement]


def review_start_page(site: Site, query: Query) -> Page:
    """The forms that start a review: of one experiment or comparison if the address names it."""
    reference, metric = query.text("subject"), query.text("metric")
    subject = None if reference is None else review_subject(site.store, reference)[0]
    body = render(
        "review_start.html",
        site,
        subjects=reviewable(site.store),
        subject=subject,
        metrics=[] if subject is None else review_metrics(site.store, subject),
        labelled=labelled_subjects(site.store, subject),
        shown=None if subject is None or metric is None else _metric(site.store, subject, metric),
        metric=metric,
        most=MOST_DISAGREEMENTS,
        by=query.text("by"),
        label_text=label_text,
    )
    return Page(title="Review", section="review", body=body)


def _metric(store: Store, subject: str, metric: str) -> _Metric:
    found = reviewed(store, subject, metric)
    kind = question_about(found, Asked(kind=None if found.judged or found.labels else "yes_no")).kind
    return _Metric(
        metric=metric,
        n_items=len(found.items),
        sides=_sides(store, found) if found.is_pairs else {},
        agreement=_alpha(people_agreement(found, kind)),
        differing=disagreements(found),
    )


def _sides(store: Store, found: Reviewed) -> Mapping[str, str]:
    both = {side for item in found.items for side in (item.experiment_id, item.other_experiment_id) if side}
    (rows,) = ask(store, (_NAMES, [sorted(both)]))
    return names_apart(store, dict(rows))


_NAMES = "select experiment_id, name from experiments where is_one_of(experiment_id, $1)"


def _alpha(alpha: dict[str, Any] | None) -> tuple[str, str] | None:
    """Return alpha and its interval, or the reason why it has none."""
    if alpha is None:
        return None
    value, interval = estimate(alpha["alpha"], alpha["low"], alpha["high"], "", marks=(0,))
    return value, interval or f"no interval: {alpha['reason']}"
