"""The page that lists comparisons."""

from functools import partial

from evalflows.dashboard.rendering import Page, Query, Site, render, steady
from evalflows.reports.comparison import comparison_overviews, overall_win_rates
from evalflows.reports.datasets import runs_by_dataset
from evalflows.store.sql import ask, order_by
from evalflows.store.store import Store

COMPARISONS_IN_PAGE = 30

STATES = ("running", "completed", "incomplete", "interrupted")

SORTS = {"name": "lower(name)", "state": "state", "missing": "missing", "cost": "cost_usd", "started": "started_at"}

MOST_RATES = 3
"""Win rates that are shown in a comparison's row; of more pairs of systems, its own page tells."""


@steady
def comparisons_page(site: Site, query: Query) -> Page:
    """Return the list of comparisons."""
    text, number, dataset = query.text("q"), query.number("page"), query.text("dataset")
    state = query.choice("state", STATES, "") if query.text("state") else None
    sort = query.text("sort") or "-started"
    place = {"limit": COMPARISONS_IN_PAGE, "offset": COMPARISONS_IN_PAGE * (number - 1)}
    identities, total = chosen_comparisons(site.store, text, state, dataset, **place, sort=sort)
    values = {"q": text, "state": state, "dataset": dataset, "sort": query.text("sort")}
    places = ", ".join(f"${n}" for n in range(1, len(identities) + 1))
    shown = comparison_overviews(site.store, f"comparison_id in ({places})", identities) if identities else []
    shown.sort(key=lambda one: identities.index(one.comparison_id))
    address = partial(site.links.page, "pairwise", **values)
    body = render(
        "comparisons.html",
        site,
        comparisons=shown,
        rates=overall_win_rates(site.store, identities) if identities else {},
        most_rates=MOST_RATES,
        states=STATES,
        q=text,
        state=state,
        dataset=dataset,
        datasets=[*runs_by_dataset(site.store)],
        total=total,
        number=number,
        last=-(-total // COMPARISONS_IN_PAGE),
        sort=sort,
        paged=lambda page: address(page=page),
        address=address,
    )
    is_running = any(comparison.state == "running" for comparison in shown)
    return Page(title="Pairwise comparisons", section="pairwise", body=body, refresh_s=5 if is_running else None)


def chosen_comparisons(
    store: Store,
    text: str | None = None,
    state: str | None = None,
    dataset: str | None = None,
    *,
    limit: int,
    offset: int = 0,
    sort: str = "-started",
) -> tuple[list[str], int]:
    """Return the ids on a page of the list, sorted by one of SORTS, and how many there are on all pages.

    Those of a dataset compare experiments on any of its versions.
    """
    order = order_by(sort, SORTS, "started_at desc, comparison_id desc")
    (rows,) = ask(store, (f"{_CHOSEN} {order} limit $4 offset $5", [text, state, dataset, limit, offset]))
    return [identity for identity, _ in rows], rows[0][1] if rows else 0


_CHOSEN = """
select comparison_id, count(*) over () from comparison_sets
where ($1::varchar is null or contains(lower(name), lower($1)) or len(list_intersect(experiments, (
           select coalesce(list(experiment_id), []) from experiments where contains(lower(name), lower($1))))) > 0)
  and ($2::varchar is null or state = $2)
  and ($3::varchar is null or len(list_intersect(experiments, (
           select coalesce(list(experiment_id), []) from experiments where dataset_name = $3))) > 0)
"""
