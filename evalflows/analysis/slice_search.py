"""Where did it get worse? The slices of the examples in which a candidate departs from its overall difference."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from evalflows.analysis.differences import ExperimentPair
from evalflows.specs.errors import MEASURES
from evalflows.specs.evaluator import as_key
from evalflows.stats.slice_contrasts import SliceContrast, slice_contrasts
from evalflows.store.layout import quoted
from evalflows.store.records import ExampleRow, from_json
from evalflows.store.snapshots import load_snapshot

MIN_EXAMPLES = 20
"""Fewest examples within a slice, and outside."""
MAX_VALUES = 20
"""Most values of a field whose values are slices."""
MAX_PAIRS = 1000
"""Most slices of two fields that are searched, the largest first."""
LISTED = 5
"""Most slices that are listed."""
NEW_SHARE = 0.5
"""Least share of a slice's examples that are in no slice listed before it."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartingSlice:
    """A slice in which the difference of a metric departs from that of the other examples."""

    candidate_experiment_id: str
    metric: str
    slice: str  # such as metadata.topic=billing
    where: str  # its SQL condition, for `diff --where`
    n_examples: int
    difference: float  # candidate minus baseline, within the slice
    difference_elsewhere: float
    low: float  # simultaneous interval of the difference between the two
    high: float
    p_adjusted: float  # over all slices and metrics that were searched
    is_worse: bool  # than the other examples, by the direction of the metric


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSearch:
    """What was searched for one candidate, and what stands out."""

    candidate_experiment_id: str
    metrics: Sequence[str]
    fields: Sequence[str]
    min_examples: int  # within a slice, and outside
    n_slices: int
    n_left_out: int  # slices of two fields beyond the most that are searched
    found: Sequence[DepartingSlice]  # worse ones first, by examples times loss


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    fields: tuple[str, ...]
    name: str
    where: str
    members: Mask


def search_slices(pair: ExperimentPair, metrics: Sequence[str] = ()) -> SliceSearch:
    """Search the slices of a candidate's shared examples for those that depart from its overall difference.

    Slices are the values of the split, the cluster and of each field of inputs and metadata that has at most
    MAX_VALUES, quarters of numbers and of the length of the inputs, and pairs of two of these. Metrics are those of
    evaluators that may decide, or the given ones.
    """
    assert pair.matched is not None
    owner, level = pair.candidate.experiment_id, pair.spec.confidence_level
    places = pair.shared_places("")
    positions = pair.matched.candidate[places]
    examples = list(load_snapshot(pair.reader.store, pair.candidate.snapshot_id).rows(positions.tolist()))
    singles = list(_single(examples))
    doubles, n_left_out = _doubles(singles)
    slices = [*singles, *doubles]
    named, differences, signs = _differences(pair, metrics)
    contrasts: list[SliceContrast] = []
    if slices and named:
        contrasts = slice_contrasts(
            differences,
            np.column_stack([one.members for one in slices]),
            clusters=None if pair.clusters is None else [pair.clusters[place] for place in positions],
            min_examples=MIN_EXAMPLES,
            confidence_level=level,
        )

    def gain(one: SliceContrast) -> float:
        return signs[one.metric] * one.estimate * one.n

    departing = sorted((one for one in contrasts if one.p_adjusted <= 1 - level + 1e-12), key=gain)
    found = [
        DepartingSlice(
            candidate_experiment_id=owner,
            metric=named[one.metric],
            slice=slices[one.slice].name,
            where=slices[one.slice].where,
            n_examples=one.n,
            difference=one.within,
            difference_elsewhere=one.outside,
            low=one.low,
            high=one.high,
            p_adjusted=one.p_adjusted,
            is_worse=gain(one) < 0,
        )
        for one in islice(_apart(departing, slices), LISTED)
    ]
    return SliceSearch(
        candidate_experiment_id=owner,
        metrics=named,
        fields=sorted({field for one in singles for field in one.fields}),
        min_examples=MIN_EXAMPLES,
        n_slices=len({one.slice for one in contrasts}),
        n_left_out=n_left_out,
        found=found,
    )


def _differences(pair: ExperimentPair, metrics: Sequence[str]) -> tuple[list[str], npt.NDArray[np.float64], list[int]]:
    """Return the metrics that are compared, their differences by example, and 1 or -1 by direction."""
    named, differences, signs = [], [], []
    for metric in metrics or [one for one in pair.values if one not in MEASURES]:
        paired = pair.paired(metric)
        if paired is None or pair.why_refused(metric) or pair.why_excluded(metric):
            continue
        named.append(metric)
        differences.append(paired.candidate.values - paired.baseline.values)
        signs.append(1 if paired.scale.higher_is_better else -1)
    return named, np.array(differences), signs


def _single(examples: Sequence[ExampleRow]) -> Iterator[_Slice]:
    """Yield the slices of one field, each set of members once."""
    seen: set[bytes] = set()
    for field, values, expression in _fields(examples):
        for one in _of_field(field, values, expression):
            n = int(one.members.sum())
            if MIN_EXAMPLES <= n <= len(examples) - MIN_EXAMPLES and (key := one.members.tobytes()) not in seen:
                seen.add(key)
                yield one


def _fields(examples: Sequence[ExampleRow]) -> Iterator[tuple[str, list[Any], str]]:
    """Yield each field of the examples: its path, its values (None if an example has none), and SQL that reads it."""
    yield "split", [one.split for one in examples], "split"
    yield "cluster", [one.cluster for one in examples], "cluster"
    yield "length of inputs", [len(one.inputs) for one in examples], "length(inputs)"
    for column in ("metadata", "inputs"):
        rows: list[Mapping[str, Any]] = [from_json(getattr(one, column)) or {} for one in examples]
        for name in dict.fromkeys(name for row in rows for name in row if '"' not in name):
            values, path = [row.get(name) for row in rows], quoted(name if name.isidentifier() else f'$."{name}"')
            if any(isinstance(value, list) for value in values):
                lengths = [len(value) if isinstance(value, list) else None for value in values]
                yield f"length of {column}.{name}", lengths, f"json_array_length({column}, {path})"
            else:
                simple = [None if isinstance(value, dict) else value for value in values]
                yield f"{column}.{name}", simple, f"{column}->>{path}"


def _of_field(field: str, values: Sequence[Any], expression: str) -> Iterator[_Slice]:
    """Yield the slices of one field: of each value if there are few, else of quarters if all are numbers."""
    keys = [None if value is None else as_key(value) for value in values]
    known = {key: value for key, value in zip(keys, values, strict=True) if key is not None}
    if len(known) <= MAX_VALUES:
        for key, value in known.items():
            where = (
                f"try_cast({expression} as double) = {key}" if _is_number(value) else f"{expression} = {quoted(key)}"
            )
            members = np.array([one == key for one in keys])
            yield _Slice(fields=(field,), name=f"{field}={key}", where=where, members=members)
    elif all(map(_is_number, known.values())):
        yield from _quarters(field, values, f"try_cast({expression} as double)")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _quarters(field: str, values: Sequence[Any], number: str) -> Iterator[_Slice]:
    numbers = np.array([np.nan if value is None else float(value) for value in values])
    edges = np.unique(np.nanquantile(numbers, [0, 0.25, 0.5, 0.75, 1], method="inverted_cdf"))
    for low, high in pairwise(edges):
        is_first = low == edges[0]
        members = (numbers >= low if is_first else numbers > low) & (numbers <= high)
        where = f"{number} {'>=' if is_first else '>'} {low:.17g} and {number} <= {high:.17g}"
        name = f"{field} {'from' if is_first else 'above'} {low:g} to {high:g}"
        yield _Slice(fields=(field,), name=name, where=where, members=members)


def _doubles(singles: Sequence[_Slice]) -> tuple[list[_Slice], int]:
    """Return the slices of two fields that are large enough, and how many more there are."""
    seen = {one.members.tobytes() for one in singles}
    made: list[_Slice] = []
    for one, other in combinations(singles, 2):
        if one.fields == other.fields:
            continue
        members = one.members & other.members
        if members.sum() < MIN_EXAMPLES or (key := members.tobytes()) in seen:
            continue
        seen.add(key)
        name, where = f"{one.name} and {other.name}", f"{one.where} and {other.where}"
        made.append(_Slice(fields=one.fields + other.fields, name=name, where=where, members=members))
    made.sort(key=lambda each: -int(each.members.sum()))
    return made[:MAX_PAIRS], max(0, len(made) - MAX_PAIRS)


def _apart(departing: Sequence[SliceContrast], slices: Sequence[_Slice]) -> Iterator[SliceContrast]:
    """Yield those that are not mostly the examples of one that came before, by metric and direction."""
    covered: dict[tuple[int, bool], Mask] = {}
    for one in departing:
        members, key = slices[one.slice].members, (one.metric, one.estimate > 0)
        before = covered.get(key, np.zeros_like(members))
        if (members & ~before).sum() >= NEW_SHARE * members.sum():
            covered[key] = before | members
            yield one
