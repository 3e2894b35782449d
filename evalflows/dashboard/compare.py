"""The address of a comparison: which experiments, and which examples in which order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from evalflows.pages.links import Links
from evalflows.pages.query import Query
from evalflows.reports.change_queries import CHANGES, Change
from evalflows.reports.side_by_side import RowFilter, RowSort
from evalflows.specs.errors import InputError
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_experiments

MOST_CANDIDATES = 8

WORSE_IN_ANY: Literal["worse_in_any"] = "worse_in_any"
"""Instead of a change in the metric: the examples that got worse in any metric of an evaluator."""

WantedChange = Change | Literal["worse_in_any"]

SORTS: tuple[RowSort, ...] = get_args(RowSort)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareQuery:
    """The parameters of the pages of a comparison; experiments are ids."""

    baseline: str
    candidates: Sequence[str]
    metric: str | None = None  # by which examples are filtered, sorted and coloured; None: the page chooses
    change: WantedChange | None = None
    of: str | None = None  # the candidate whose changes count; None: any
    split: str | None = None
    q: str | None = None
    sort: RowSort = "worst"
    words: bool = False  # whether words that differ are marked
    page: int = 1

    @classmethod
    def of_query(cls, store: Store, query: Query) -> "CompareQuery | None":
        """Return the parameters; None if a side is missing. Raise InputError for wrong ones."""
        baseline, candidates = chosen_sides(store, query)
        if baseline is None or not candidates:
            return None
        of = query.text("of")
        if of is not None and of not in candidates:
            raise InputError(f"of: got {of!r}, wanted one of the candidates {', '.join(candidates)}")
        return cls(
            baseline=baseline,
            candidates=candidates,
            metric=query.text("metric"),
            change=query.choice("change", (*CHANGES, WORSE_IN_ANY), CHANGES[0]) if query.text("change") else None,
            of=of,
            split=query.text("split"),
            q=query.text("q"),
            sort=query.choice("sort", SORTS, "worst"),
            words=query.text("words") is not None,
            page=query.number("page"),
        )

    @property
    def filter(self) -> RowFilter:
        change = None if self.change == WORSE_IN_ANY else self.change
        return RowFilter(change=change, candidate=self.of, split=self.split, search=self.q, sort=self.sort)

    @property
    def is_filtered(self) -> bool:
        return any((self.change, self.of, self.split, self.q))

    @property
    def kept(self) -> list[tuple[str, str]]:
        """The fields that a form which changes the experiments keeps."""
        return [(name, str(value)) for name, value in self._fields().items() if name in ("metric", "sort", "words")]

    def with_metric(self, metric: str | None) -> "CompareQuery":
        """The same, about a metric."""
        return replace(self, metric=metric)

    def address(self, links: Links, **changes: Any) -> str | None:
        """Return the address of the comparison with some other values; of its first page, unless `page` is given."""
        changed = replace(self, **{"page": 1, **changes})
        return links.compare(changed.baseline, *changed.candidates, **changed._fields())

    def examples(self, links: Links, **changes: Any) -> str | None:
        """The same, leading to the table of examples."""
        address = self.address(links, **changes)
        return address and f"{address}#examples"

    def without(self, links: Links, candidate: str) -> str | None:
        """Return the address without a candidate."""
        rest = [one for one in self.candidates if one != candidate]
        return self.address(links, candidates=rest, of=None if self.of == candidate else self.of)

    def swapped(self, links: Links, candidate: str) -> str | None:
        """Return the address with a candidate as the baseline, and the baseline in its place."""
        others = [self.baseline if one == candidate else one for one in self.candidates]
        return self.address(links, baseline=candidate, candidates=others, change=None, of=None)

    def example(self, links: Links, example: str, **further: Any) -> str | None:
        """Return the address of one example, in this filter and order."""
        fields = {**self._fields(), "page": None, **further}
        sides = {"baseline": self.baseline, "candidate": self.candidates}
        return links.page("compare", "example", **sides, **fields, id=example)

    def _fields(self) -> dict[str, str | int | None]:
        return {
            "metric": self.metric,
            "change": self.change,
            "of": self.of,
            "split": self.split,
            "q": self.q,
            "sort": None if self.sort == "worst" else self.sort,
            "words": 1 if self.words else None,
            "page": None if self.page == 1 else self.page,
        }


def chosen_sides(store: Store, query: Query) -> tuple[str | None, list[str]]:
    """Return the ids of baseline and candidates. Raise InputError for an unknown one, and for too many.

    If a candidate was made the baseline, the former baseline, which a form sends as `was`, takes its place.
    """
    baseline, was = query.text("baseline"), query.text("was")
    references = query.all("candidate")
    ids = resolved(store, [*filter(None, (baseline, was)), *references])
    base, former = ids.get(baseline or ""), ids.get(was or "")
    candidates = [ids[one] for one in references]
    if base in candidates:
        candidates = [former if one == base else one for one in candidates if one != base or former]  # type: ignore[misc]
    candidates = [one for one in dict.fromkeys(candidates) if one != base]
    if len(candidates) > MOST_CANDIDATES:
        raise InputError(f"candidate: got {len(candidates)}, wanted at most {MOST_CANDIDATES}")
    return base, candidates


def resolved(store: Store, references: Sequence[str]) -> dict[str, str]:
    """Return the id that each reference means. Raise InputError for one that means none, or several."""
    query = "select experiment_id from experiments where is_one_of(experiment_id, $1)"
    known = {identity for (identity,) in ask(store, (query, [list(references)]))[0]}
    return {
        one: one if one in known else find_experiments(store, one, just_one=True)[0]
        for one in dict.fromkeys(references)
    }
