"""Experiments that can be chosen for a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from evalflows.pages.page import Site
from evalflows.store.catalog import ask

IN_LIST = 200
"""Experiments in a list to choose from, at most: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparable:
    """An experiment, as a list to choose from shows it."""

    experiment_id: str
    name: str
    target: str
    dataset: str  # its name, else the snapshot's id
    state: str
    n_examples: int
    started_at: datetime
    approved: str | None  # the names as whose baseline it is approved


@dataclass(frozen=True, slots=True, kw_only=True)
class OfDataset:
    dataset: str
    experiments: Sequence[Comparable]


def by_dataset(site: Site, search: str | None, beside: str | None) -> list[OfDataset]:
    """Return the newest experiments by dataset, that with the newest first.

    Args:
        site: The site.
        search: A text that their name or dataset has; None for any.
        beside: The id of an experiment: only those on the same dataset are wanted.
    """
    found = _asked(site, _LISTED, search, beside, IN_LIST)
    order = {dataset: place for place, dataset in enumerate(dict.fromkeys(one.dataset for one in found))}
    ordered = sorted(found, key=lambda one: order[one.dataset])
    return [
        OfDataset(dataset=dataset, experiments=list(some))
        for dataset, some in groupby(ordered, key=lambda one: one.dataset)
    ]


def beside(site: Site, experiment: str) -> list[Comparable]:
    """Return the experiments on the same dataset: approved baselines first, then the newest."""
    found = _asked(site, _LISTED, None, experiment, IN_LIST)
    return sorted(found, key=lambda one: one.approved is None)


def _asked(site: Site, query: str, *values: object) -> list[Comparable]:
    (rows,) = ask(site.store, (query, values))
    names: Any = Comparable.__slots__
    return [Comparable(**dict(zip(names, row, strict=True))) for row in rows]


_LISTED = """
with approved as (
    select experiment_id, string_agg(name, ', ' order by name) as names from approvals where holds group by all
), like_it as (
    select dataset_name, snapshot_id from experiments where experiment_id = $2
)
select e.experiment_id, e.name, e.target, coalesce(e.dataset_name, e.snapshot_id), e.state, e.n_examples, e.started_at,
       a.names
from experiments e left join approved a using (experiment_id)
where ($1 is null or contains(lower(e.name), lower($1)) or contains(lower(coalesce(e.dataset_name, '')), lower($1)))
      and ($2 is null or exists (select 1 from like_it l
                                 where e.dataset_name = l.dataset_name or e.snapshot_id = l.snapshot_id))
order by e.started_at desc, e.experiment_id limit $3
"""
