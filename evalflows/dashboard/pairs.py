"""The pairs of a comparison: their list, and a page for each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.pages.texts import IN_TABLE, ON_PAGE, clipped, shown_text
from evalflows.reports.names_apart import names_apart
from evalflows.reports.pair_list import (
    KINDS,
    JudgedPair,
    Kind,
    PairChoice,
    judged_pair,
    pair_list,
    pair_metrics,
    pair_splits,
)
from evalflows.reports.word_diff import WordDiff, word_diff
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_comparison
from evalflows.store.records import ComparisonSetRow

IN_PAGE = 20

KIND_NAMES: Mapping[Kind, str] = {
    "left": "first better",
    "right": "second better",
    "tie": "tie",
    "half": "half tie",
    "flipped": "flipped",
    "missing": "missing",
    "not_applicable": "not applicable",
    "left_out": "left out",
}
"""What the outcomes of pairs are called."""


def pair_page(site: Site, query: Query) -> Page:
    """One pair of a comparison: both answers in full, and everything that is known of the judgement."""
    return site.store.steady(lambda: _pair_page(site, query))


def _pair_page(site: Site, query: Query) -> Page:
    identity = find_comparison(site.store, query.wanted("id"))
    (row,) = site.store.read("comparison_sets", identity)
    pair = judged_pair(site.store, row, *(query.wanted(name) for name in ("metric", "left", "right")))
    names = system_names(site.store, row)
    sides = answers_of(pair, ON_PAGE)
    body = render("pair.html", site, row=row, pair=pair, sides=sides, names=names, kind_names=kind_names(names))
    return Page(title=f"{row.name}: {pair.example_id}", section="pairwise", body=body)


def system_names(store: Store, row: ComparisonSetRow) -> dict[str, str]:
    """Return the name of each compared system, by its id; those of votes have only names."""
    if row.n_votes is not None:
        return {system: system for system in row.experiments}
    query = "select experiment_id, name from source.experiments where list_contains(?, experiment_id)"
    known = dict(store.query(query, [row.experiments]))
    return names_apart(store, {identity: known.get(identity, identity) for identity in row.experiments})


def kind_names(names: Mapping[str, str]) -> Mapping[Kind, str]:
    """Return what outcomes are called; of two systems, by the better one's name."""
    if len(names) != 2:
        return KIND_NAMES
    left, right = sorted(names)
    return {**KIND_NAMES, "left": f"{names[left]} better", "right": f"{names[right]} better"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One of two answers: its parts, of which those that the other lacks are marked."""

    parts: WordDiff
    left_out: int  # characters that are not shown
    error: str | None  # why there is none


def answers_of(pair: JudgedPair, most: int = IN_TABLE) -> tuple[Answer, Answer]:
    """Return both answers, each with at most so many characters."""
    left, right = (clipped(shown_text(outputs), most) for outputs in (pair.left_outputs, pair.right_outputs))
    has_both = pair.left_outputs is not None and pair.right_outputs is not None
    if has_both:
        parts = word_diff(left.text, right.text)
        first, second = ([one for one in parts if one[0] != other] for other in ("added", "removed"))
    else:
        first, second = [("same", left.text)], [("same", right.text)]
    return (
        Answer(parts=first, left_out=left.left_out, error=pair.left_error),
        Answer(parts=second, left_out=right.left_out, error=pair.right_error),
    )


def listed_pairs(site: Site, query: Query, row: ComparisonSetRow, names: Mapping[str, str]) -> dict[str, object]:
    """Return what the template's list of pairs is made from."""
    metrics, splits = pair_metrics(site.store, row.comparison_id), pair_splits(site.store, row)
    if not metrics:
        return {"metrics": metrics, "pairs": None, "address": None}
    choice = PairChoice(
        metric=query.choice("metric", metrics, metrics[0]),
        kind=query.choice("outcome", KINDS, KINDS[0]) if query.text("outcome") else None,
        systems=chosen_systems(query, names),
        split=query.choice("split", splits, splits[0]) if query.text("split") else None,
        text=query.text("q"),
    )
    number, address = query.number("page"), _address(site, row, choice)
    listed = pair_list(site.store, row, choice, page=number, in_page=site.in_page(IN_PAGE))
    return {
        "metrics": metrics,
        "splits": splits,
        "choice": choice,
        "pairs": listed,
        "kind_names": kind_names(names),
        "number": number,
        "last": max(1, -(-listed.n_chosen // site.in_page(IN_PAGE))),
        "chosen_systems": {"system": query.text("system"), "against": query.text("against")},
        "address": address,
        "page_address": lambda page: address(page=page),
        "answers_of": answers_of,
        "pair_address": lambda pair: _pair_address(site, row, pair),
    }


def chosen_systems(query: Query, names: Mapping[str, str]) -> list[str]:
    """Return the ids of the systems that the address names. Raise InputError for one that was not compared."""
    chosen = [system for name in ("system", "against") if (system := query.text(name))]
    for system in chosen:
        if system not in names:
            raise InputError(f"system: got {system!r}, wanted one of the comparison's: {', '.join(list(names)[:10])}")
    return chosen


def _address(site: Site, row: ComparisonSetRow, choice: PairChoice) -> Callable[..., str | None]:
    """Return a function of the parameters to change, which gives the address of a list of pairs."""
    system, against = [*choice.systems, None, None][:2]
    chosen = {"metric": choice.metric, "outcome": choice.kind, "system": system, "against": against}
    chosen |= {"split": choice.split, "q": choice.text}

    def address(**changes: str | int | None) -> str | None:
        base = site.links.comparison(row.comparison_id, **{**chosen, **changes})
        return f"{base}#pairs" if base else None

    return address


def _pair_address(site: Site, row: ComparisonSetRow, pair: JudgedPair) -> str | None:
    return site.links.page(
        *("pairwise", row.comparison_id, "pair"), metric=pair.metric, left=pair.left_run_id, right=pair.right_run_id
    )
