"""A diff as a page of a report shows its figures and its lists, without links."""

from answered import answered
from page_text import seen

from evalflows.dashboard.compare import diff_page
from evalflows.dashboard.links import NoLinks
from evalflows.dashboard.rendering import Site
from evalflows.reports.diff import diff_of
from evalflows.store.store import Store

EXAMPLES = ["q0", "q1", "q2"]


def test_the_lists_show_both_answers_and_what_changed() -> None:
    old = answered("old", dict.fromkeys(EXAMPLES, "in Paris"), {"right": dict.fromkeys(EXAMPLES, 1.0)})
    scores = dict(zip(EXAMPLES, [0.0, 1.0, None], strict=True))
    new = answered("new", dict.fromkeys(EXAMPLES, "in Rome <b>"), {"right": scores}, place=1)
    store = Store()
    page = diff_page(Site(store=store, links=NoLinks()), diff_of(store, old, [new]))
    shown = seen(page.body)
    row = next(row for row in shown.rows if row and row[0].startswith("q0"))
    assert page.title == "new against old"
    assert "in Paris" in row[1] and "in Rome <b>" in row[2] and "right: was 1, now 0" in row[2]
    assert "right says 0.0 of q0" in row[2], "what the judge said"
    assert not {"a", "form"} & {*shown.tags} and "Rome <b>" not in str(page.body)
