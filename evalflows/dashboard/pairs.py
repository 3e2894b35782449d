"""The page of a comparison, and of one judged pair."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from evalflows.dashboard.rendering import IN_TABLE, ON_PAGE, Page, Query, Site, clipped, render, shown_text, steady
from evalflows.dashboard.two_judges import two_judges_address
from evalflows.reports import comparison
from evalflows.reports.comparison import ComparisonReport, WinRate, comparison_report
from evalflows.reports.names import names_apart
from evalflows.reports.word_diff import WordDiff, word_diff
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.store.queries.lookup import find_comparison
from evalflows.store.records import ComparisonSetRow
from evalflows.store.store import Store

PAIRS_IN_PAGE = 20

KIND_NAMES: Mapping[comparison.Kind, str] = {
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

IN_MATRIX = 30
"""Systems in the matrix of win rates, at most; the highest ranks come first."""

_OPPOSITE = {"better": "worse", "worse": "better"}


@steady
def pair_page(site: Site, query: Query) -> Page:
    """Return one pair of a comparison: both answers in full, and everything that is known of the judgement."""
    identity = find_comparison(site.store, query.wanted("id"))
    (row,) = site.store.read("comparison_sets", identity)
    pair = comparison.judged_pair(site.store, row, *(query.wanted(name) for name in ("metric", "left", "right")))
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


def kind_names(names: Mapping[str, str]) -> Mapping[comparison.Kind, str]:
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


def answers_of(pair: comparison.JudgedPair, most: int = IN_TABLE) -> tuple[Answer, Answer]:
    """Return both answers, each with at most so many characters."""
    left, right = (clipped(shown_text(outputs), most) for outputs in (pair.left_outputs, pair.right_outputs))
    has_both = pair.left_outputs is not None and pair.right_outputs is not None
    if has_both:
        parts = word_diff(left.text, right.text)
        first, second = ([part for part in parts if part[0] != other] for other in ("added", "removed"))
    else:
        first, second = [("same", left.text)], [("same", right.text)]
    return (
        Answer(parts=first, left_out=left.left_out, error=pair.left_error),
        Answer(parts=second, left_out=right.left_out, error=pair.right_error),
    )


def listed_pairs(site: Site, query: Query, row: ComparisonSetRow, names: Mapping[str, str]) -> dict[str, object]:
    """Return what the template's list of pairs is made from."""
    metrics, splits = comparison.pair_metrics(site.store, row.comparison_id), comparison.pair_splits(site.store, row)
    if not metrics:
        return {"metrics": metrics, "pairs": None, "address": None}
    choice = comparison.PairChoice(
        metric=query.choice("metric", metrics, metrics[0]),
        kind=query.choice("outcome", comparison.KINDS, comparison.KINDS[0]) if query.text("outcome") else None,
        systems=chosen_systems(query, names),
        split=query.choice("split", splits, splits[0]) if query.text("split") else None,
        text=query.text("q"),
    )
    number, address = query.number("page"), _address(site, row, choice)
    listed = comparison.pair_list(site.store, row, choice, page=number, in_page=site.in_page(PAIRS_IN_PAGE))
    return {
        "metrics": metrics,
        "splits": splits,
        "choice": choice,
        "pairs": listed,
        "kind_names": kind_names(names),
        "number": number,
        "last": max(1, -(-listed.n_chosen // site.in_page(PAIRS_IN_PAGE))),
        "chosen_systems": {"system": query.text("system"), "against": query.text("against")},
        "address": address,
        "page_address": lambda page: address(page=page),
        "answers_of": answers_of,
        "pair_address": lambda pair: site.links.page(
            *("pairwise", row.comparison_id, "pair"), metric=pair.metric, left=pair.left_run_id, right=pair.right_run_id
        ),
    }


def chosen_systems(query: Query, names: Mapping[str, str]) -> list[str]:
    """Return the ids of the systems that the address names. Raise InputError for one that was not compared."""
    chosen = [system for name in ("system", "against") if (system := query.text(name))]
    for system in chosen:
        if system not in names:
            raise InputError(f"system: got {system!r}, wanted one of the comparison's: {', '.join(list(names)[:10])}")
    return chosen


def _address(site: Site, row: ComparisonSetRow, choice: comparison.PairChoice) -> Callable[..., str | None]:
    """Return a function of the parameters to change, which gives the address of a list of pairs."""
    system, against = [*choice.systems, None, None][:2]
    chosen = {"metric": choice.metric, "outcome": choice.kind, "system": system, "against": against}
    chosen |= {"split": choice.split, "q": choice.text}

    def address(**changes: str | int | None) -> str | None:
        base = site.links.comparison(row.comparison_id, **{**chosen, **changes})
        return f"{base}#pairs" if base else None

    return address


@steady
def comparison_page(site: Site, query: Query) -> Page:
    """Return a comparison, and one page of its pairs."""
    identity = find_comparison(site.store, query.wanted("id"))
    (row,) = site.store.read("comparison_sets", identity)
    report = comparison_report(site.store, identity)
    names = system_names(site.store, row)
    rates = _shown_rates(report, chosen_systems(query, names))
    body = render(
        "comparison.html",
        site,
        report=report,
        over=report.overview,
        row=row,
        two_judges=two_judges_address(site, identity),
        names=names,
        rates=[rate for rate in rates if rate.slice == "all"],
        sliced_rates=[rate for rate in rates if rate.slice != "all"],
        matrices=_matrices(report, names),
        rating_ends=[end for ranked in report.ranking for end in (ranked.rating, ranked.ci_low, ranked.ci_high)],
        links_to=lambda system: None if row.n_votes is not None else site.links.experiment(system),
        **listed_pairs(site, query, row, names),
    )
    refresh_s = 5 if report.overview.state == "running" else None
    name = report.overview.name
    return Page(title=name, section="pairwise", body=body, refresh_s=refresh_s, is_shared=True, reported=identity)


def _shown_rates(report: ComparisonReport, systems: Sequence[str]) -> list[WinRate]:
    """Return the win rates that are listed: all, or those of the chosen systems; of many systems none by default."""
    if report.has_many_pairs and not systems:
        return []
    return [
        rate for rate in report.win_rates if {*systems} <= {rate.candidate_experiment_id, rate.baseline_experiment_id}
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The win rates of systems against each other, by one metric: of the row's against the column's."""

    metric: str
    systems: Sequence[str]  # ids, the best first
    n_left_out: int  # systems that are not shown
    rates: Mapping[tuple[str, str], WinRate]


def _matrices(report: ComparisonReport, names: Mapping[str, str]) -> list[Matrix]:
    if not report.has_ranking:
        return []
    rates: dict[str, dict[tuple[str, str], WinRate]] = {}
    for rate in report.win_rates:
        if rate.is_overall:
            cells = rates.setdefault(rate.metric, {})
            cells[rate.candidate_experiment_id, rate.baseline_experiment_id] = rate
            cells[rate.baseline_experiment_id, rate.candidate_experiment_id] = _from_other_side(rate)
    ranked = {metric: [row.experiment_id for row in report.ranking if row.metric == metric] for metric in rates}
    systems = {metric: list(dict.fromkeys([*ranked[metric], *names])) for metric in rates}
    return [
        Matrix(
            metric=metric, systems=systems[metric][:IN_MATRIX], n_left_out=len(systems[metric][IN_MATRIX:]), rates=cells
        )
        for metric, cells in rates.items()
    ]


def _from_other_side(rate: WinRate) -> WinRate:
    """Return a win rate as that of the baseline against the candidate."""
    low, value, high = (
        None if share is None else 1 - share for share in (rate.win_rate_high, rate.win_rate, rate.win_rate_low)
    )
    return replace(
        rate,
        candidate_experiment_id=rate.baseline_experiment_id,
        candidate=rate.baseline,
        baseline_experiment_id=rate.candidate_experiment_id,
        baseline=rate.candidate,
        win_rate=value,
        win_rate_low=low,
        win_rate_high=high,
        wins=rate.losses,
        losses=rate.wins,
        conclusion=_OPPOSITE.get(rate.conclusion, rate.conclusion),
    )
