"""The page of two judges side by side, and the list of what was judged again."""

from evalflows.analysis.two_judges import MetricOfTwo, TwoJudges, two_judges
from evalflows.dashboard.rendering import Page, Query, Site, render, steady
from evalflows.reports.two_judges import each_text, remarks_of, said_by, texts_of
from evalflows.store.queries.two_judges import TwoJudgements, listed_again, newest_again

FLIPS_IN_PAGE = 20


@steady
def two_judges_page(site: Site, query: Query) -> Page:
    """Return two judges of what `of` names, judged again or before; without it, the list of what was judged again."""
    reference = query.text("of")
    if reference is None:
        body = render("two_judges_list.html", site, listed=listed_again(site.store))
        return Page(title="Two judges", section="judges", body=body)
    record, number = two_judges(site.store, reference), query.number("page")
    flips = [(metric, flip) for metric in record.metrics for flip in metric.flips]
    size = site.in_page(FLIPS_IN_PAGE)
    shown = flips[size * (number - 1) : size * number]
    reported = None if record.subjects == "items" else record.after[0]
    body = render(
        "two_judges.html",
        site,
        record=record,
        remarks=remarks_of(record),
        each_text=each_text,
        said_by=said_by,
        flips=shown,
        n_flips=len(flips),
        texts=texts_of(site.store, record, [flip for _, flip in shown]),
        answer_address=lambda metric, flip: _answer_address(site, record, metric, flip),
        subject_address=lambda identity: _subject_address(site, record, identity),
        number=number,
        last=-(-len(flips) // size) or 1,
        page_address=lambda page: site.links.page("two-judges", of=reference, page=page),
    )
    return Page(
        title=f"Two judges of {record.name}",
        section="judges",
        body=body,
        is_shared=reported is not None,
        reported=reported,
    )


def _answer_address(site: Site, record: TwoJudges, metric: MetricOfTwo, flip: TwoJudgements) -> str | None:
    if record.subjects == "items":
        return site.links.trace(flip.unit.partition("/")[0])
    if record.subjects == "pairs":
        left, _, right = flip.unit.partition(" ")
        return site.links.page("pairwise", record.after[0], "pair", metric=metric.metric, left=left, right=right)
    return site.links.example(flip.experiment_id or "", flip.example_id, flip.repetition)


def _subject_address(site: Site, record: TwoJudges, identity: str) -> str | None:
    if record.subjects == "items":
        return site.links.evaluation(identity)
    return site.links.comparison(identity) if record.subjects == "pairs" else site.links.experiment(identity)


def two_judges_address(site: Site, identity: str) -> str | None:
    """Return the page of two judges of an experiment or a comparison; None if it was not judged again."""
    return site.links.page("two-judges", of=identity) if newest_again(site.store, identity) else None
