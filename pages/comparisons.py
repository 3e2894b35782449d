"""The list of pairwise comparisons, newest first."""

from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.comparison import comparison_overviews, overall_win_rates
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store

IN_PAGE = 30

STATES = ("running", "completed", "incomplete", "interrupted")

MOST_RATES = 3
"""Win rates that are shown in a comparison's row; of more pairs of systems, its own page tells."""


def comparisons_page(site: Site, query: Query) -> Page:
    """The list of comparisons."""
    text, number = query.text("q"), query.number("page")
    state = query.choice("state", STATES, "") if query.text("state") else None
    identities, total = _chosen(site.store, text, state, number)
    holds = f"comparison_id in ({', '.join(f'${n}' for n in range(1, len(identities) + 1))}) order by started_at desc"
    shown = comparison_overviews(site.store, holds, identities) if identities else []
    body = render(
        "comparisons.html",
        site,
        comparisons=shown,
        rates=overall_win_rates(site.store, identities) if identities else {},
        most_rates=MOST_RATES,
        states=STATES,
        q=text,
        state=state,
        total=total,
        number=number,
        last=-(-total // IN_PAGE),
        address=lambda page: site.links.page("pairwise", q=text, state=state, page=page),
    )
    is_running = any(one.state == "running" for one in shown)
    return Page(title="Pairwise comparisons", section="pairwise", body=body, refresh_s=5 if is_running else None)


def _chosen(store: Store, text: str | None, state: str | None, number: int) -> tuple[list[str], int]:
    """Return the ids on a page of the list, newest first, and how many there are on all pages."""
    (rows,) = ask(store, (_CHOSEN, [text, state, IN_PAGE, IN_PAGE * (number - 1)]))
    return [identity for identity, _ in rows], rows[0][1] if rows else 0


_CHOSEN = """
select comparison_id, count(*) over () from comparison_sets
where ($1::varchar is null or contains(lower(name), lower($1)) or len(list_intersect(experiments, (
           select coalesce(list(experiment_id), []) from experiments where contains(lower(name), lower($1))))) > 0)
  and ($2::varchar is null or state = $2)
order by started_at desc, comparison_id desc limit $3 offset $4
"""
