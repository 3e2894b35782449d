"""The search of slices, in words: where a candidate departs from its overall difference."""

import math
from collections.abc import Sequence

from evalflows.analysis.changes import DepartingSlice, SliceSearch
from evalflows.analysis.figures import estimate_text, figure, p_text
from evalflows.specs import hints
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES
from evalflows.store.sql import ask, record_of
from evalflows.store.store import Store

SLICE_COLUMNS = ("metric", "slice", "examples", "difference", "elsewhere", "p vs elsewhere", "slice is")

MOST_NAMED = 3
"""Slices in one line that did not get worse."""

MOST_VALUES = 12
"""A metadata field with more different values makes no slices."""

MOST_SHOWN = 4
"""Values of a field in one line, the worst ones."""

Z_95 = 1.959963984540054
"""The standard normal quantile of 97.5 %."""

FEW = 10
"""A mean of fewer examples says little."""


def search_text(search: SliceSearch, name: str, baseline: str) -> str:
    """Return what was searched and how many slices stand out, in a sentence; given are the names of both sides."""
    if not search.metrics:
        return f"{name} against {baseline}: no slice was searched, as no metric of an evaluator is compared"
    if not search.n_slices:
        none = f"{name} against {baseline}: no slice has {search.min_examples} examples, and as many outside"
        return f"{none}{_not_searched(search)}"
    return f"{_stand_out(search)} of {name} against {baseline}: {_searched(search)}{_not_searched(search)}"


def _not_searched(search: SliceSearch) -> str:
    """Return which fields have too few examples of each value, to follow a sentence; empty if none has."""
    few = f"; not searched: {', '.join(search.too_few)}, wanted {search.min_examples} of a value, and outside"
    return few if search.too_few else ""


def _stand_out(search: SliceSearch) -> str:
    n = len({departing.slice for departing in search.found})  # some in several metrics
    return f"{n or 'no'} slice{'s stand' if n > 1 else ' stands'} out from the overall difference"


def _searched(search: SliceSearch) -> str:
    """Return which slices were searched in which metrics, over all of which p is adjusted: a gate may search other
    metrics than a diff, and gives the same slice another p then."""
    n, fields = len(search.metrics), len(search.fields)
    more = f"; {search.n_left_out} smaller ones of two fields were not searched" if search.n_left_out else ""
    return (
        f"searched {search.n_slices} slice{'s' * (search.n_slices != 1)} of the field{'s' * (fields != 1)} "
        f"{', '.join(search.fields)} in {n} metric{'s' * (n != 1)} ({', '.join(search.metrics)}), "
        f"over which p is adjusted{more}"
    )


def slice_cells(row: DepartingSlice) -> list[str]:
    """Return a slice that stands out as cells of a row."""
    ends = (row.difference_low, row.difference_high)
    there = estimate_text(row.difference, *ends, row.metric, signed=True)
    elsewhere = figure(row.difference_elsewhere, row.metric, signed=True)
    return [row.metric, row.slice, str(row.n_examples), there, elsewhere, p_text(row.p_adjusted), _departs(row)]


def _departs(departing: DepartingSlice) -> str:
    """Return how a slice departs from the other examples, and from the baseline if its own interval shows that."""
    than = " than elsewhere" if departing.includes_0 else ""
    if departing.is_worse:
        return f"worse{than}" if departing.got_worse else "gains less"
    return "loses less" if departing.is_loss or not departing.difference else f"better{than}"


def examples_command(search: SliceSearch, baseline: str) -> hints.Hint | None:
    """Return the command that shows the examples of the first slice; given is the baseline's id. None without one,
    if it is one of a label, and if its condition was erased."""
    if not search.found or not search.found[0].where:
        return None
    first = search.found[0]
    return hints.diff(baseline, search.candidate_experiment_id, metric=first.metric, where=first.where)


def where_lines(search: SliceSearch) -> list[str]:
    """Return how many slices stand out, each that got worse, and how the others depart, in lines; none if nothing could
    be searched."""
    if not search.n_slices:
        return []
    lines = [f"{_stand_out(search)}: {_searched(search)}"]
    others: dict[str, dict[str, list[str]]] = {}
    for departing in search.found:
        metric, slice_, n, there, elsewhere, p, word = slice_cells(departing)
        if departing.got_worse:
            departs = f"{metric} {there} in {n} examples, {elsewhere} elsewhere (p adj. of the departure {p})"
            lines.append(f"worse than elsewhere in {slice_}: {departs}")
        else:
            others.setdefault(word, {}).setdefault(slice_, []).append(metric)
    are_several = len(search.metrics) > 1
    named = {
        word: [f"{slice_} ({', '.join(of)})" if are_several else slice_ for slice_, of in slices.items()]
        for word, slices in others.items()
    }
    return [*lines, *(f"{word} in {_in_brief(slices)}" for word, slices in named.items())]


def _in_brief(slices: Sequence[str]) -> str:
    more = len(slices) - MOST_NAMED
    return "; ".join([*slices[:MOST_NAMED], *([f"and {more} other{'s' * (more != 1)}"] if more > 0 else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMean:
    """The mean of one metric on the examples with one value of a field; repetitions are averaged within them first."""

    metric: str
    mean: float | None
    n_examples: int  # with a value
    missing: int  # runs that failed or were not attempted
    is_yes_no: bool  # whether each value is 0 or 1

    @property
    def is_few(self) -> bool:
        return self.n_examples < FEW

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the share of a yes/no metric, at 95 % by Wilson's score, as of the whole experiment; None of others."""
        if self.mean is None or not self.n_examples or not self.is_yes_no:
            return None
        n, z = self.n_examples, Z_95
        middle = self.mean + z * z / (2 * n)
        half = z * math.sqrt(self.mean * (1 - self.mean) / n + z * z / (4 * n * n))
        return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)

    @property
    def text(self) -> str:
        """`0 of 10 [0.00, 0.28]`; of other metrics the mean and n."""
        if self.mean is None:
            return "no value"
        if (interval := self.interval) is None:
            return f"{figure(self.mean, self.metric)} (n {self.n_examples})"
        return f"{round(self.mean * self.n_examples)} of {self.n_examples} [{interval[0]:.2f}, {interval[1]:.2f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The examples with one value of a field."""

    field: str  # `split`, or `metadata.NAME`
    value: str
    n_examples: int
    means: Sequence[SliceMean]

    def mean(self, metric: str) -> SliceMean | None:
        return next((mean for mean in self.means if mean.metric == metric), None)


def slice_means(store: Store, experiment: str, snapshot: str) -> list[Slice]:
    """Return the slices of an experiment on a snapshot, by field and value, with the metrics of evaluators."""
    sizes, means = ask(
        store,
        (f"{_SLICES} select field, value, count(*) from slices group by all order by all", [snapshot, MOST_VALUES]),
        (f"{_SLICES} {_MEANS}", [snapshot, MOST_VALUES, experiment, [*MEASURES]]),
    )
    by_slice = grouped(((field, value), record_of(SliceMean, mean)) for field, value, *mean in means)
    return [
        Slice(field=field, value=value, n_examples=count, means=by_slice.get((field, value), []))
        for field, value, count in sizes
    ]


def field_lines(slices: Sequence[Slice], metric: str, *, higher_is_better: bool) -> list[str]:
    """Return a line per field: its values with their means of a metric, the worst first. Nothing is tested."""
    fields: dict[str, list[tuple[float, str]]] = {}
    for slice_ in slices:
        mean = slice_.mean(metric)
        if mean is not None and mean.mean is not None:
            worst_first = mean.mean if higher_is_better else -mean.mean
            fields.setdefault(slice_.field, []).append((worst_first, f"{slice_.value} {mean.text}"))
    return [
        f"{metric} by {field}: {', '.join(text for _, text in sorted(of)[:MOST_SHOWN])}"
        + (f", {len(of) - MOST_SHOWN} better" if len(of) > MOST_SHOWN else "")
        for field, of in fields.items()
        if len(of) > 1
    ]


_SLICES = """
with fields as (
    select example_id, 'split' as field, split as value from examples where snapshot_id = $1 and split is not null
    union all
    select example_id, 'metadata.' || key, metadata ->> ('$."' || replace(key, '"', '\\"') || '"')
    from (select example_id, metadata, unnest(json_keys(metadata)) as key from examples
          where snapshot_id = $1 and json_type(metadata) = 'OBJECT')
), few as (
    select field from fields where value is not null group by field having count(distinct value) between 2 and $2
), slices as (
    select example_id, field, value from fields semi join few using (field) where value is not null
)
"""

_MEANS = """
, by_example as (
    select example_id, metric, avg(value) filter (status = 'scored') as value,
           count(*) filter (status in ('failed', 'not_attempted')) as missing
    from run_values where experiment_id = $3 and not list_contains($4, metric)
    group by example_id, metric having count(value) > 0 or missing > 0
)
select field, s.value, metric, avg(b.value), count(b.value), sum(missing)::bigint,
       coalesce(bool_and(b.value in (0, 1)), false)
from slices s join by_example b using (example_id) group by all order by all
"""
