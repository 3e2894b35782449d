"""Where did it get worse? The slices of the examples in which a candidate departs from its overall difference."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations, islice, pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from evalflows.analysis.changes import DepartingSlice, SliceSearch
from evalflows.analysis.differences import ExperimentPair
from evalflows.analysis.pairing import paired_metric
from evalflows.specs.evaluator import as_key
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES
from evalflows.specs.target import RecordedTarget
from evalflows.stats.slice_contrasts import SliceContrast, slice_contrasts
from evalflows.store.layout import quoted
from evalflows.store.queries.values import Mask, distinct
from evalflows.store.records import CheckRow, ExampleRow, derived_id, from_json, to_json

MIN_EXAMPLES = 20
"""Fewest examples within a slice, and outside."""
MAX_VALUES = 20
"""Most values of a field whose values are slices."""
MAX_PAIRS = 1000
"""Most slices of two fields that are searched, the largest first."""
LISTED = 5
"""Most slices that are listed."""
OWN_FIELDS = ("split", "metadata.")
"""Fields that people give examples to tell them apart: where they are not searched, it is said."""
NEW_SHARE = 0.5
"""Least share of a slice's examples that are in no slice listed before it."""

SLICES = "slices"
"""The name of a check that is a search of slices."""

Given = Mapping[str, Sequence[Any]]
"""By field, what each example has that is not in its columns; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Examples that have a value of a field, or of two fields."""

    fields: tuple[str, ...]
    name: str
    where: str  # SQL on the examples; empty if their columns do not have the field
    members: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """The slices of some examples."""

    singles: Sequence[Slice]  # of one field
    doubles: Sequence[Slice]  # of two fields, the largest first
    n_left_out: int  # of two fields, beyond MAX_PAIRS
    too_few: Sequence[str]  # fields that people gave of which no value has enough examples, with their sizes

    @property
    def all(self) -> Sequence[Slice]:
        return [*self.singles, *self.doubles]


def search_slices(pair: ExperimentPair, metrics: Sequence[str] = ()) -> SliceSearch:
    """Search the slices of a candidate's shared examples for those that depart from its overall difference.

    Slices are the values of the split, the cluster and of each field of inputs and metadata that has at most
    MAX_VALUES, quarters of numbers, of the length of the inputs and of the input tokens, the label that an evaluator
    gives both answers, as one of the input or a topic does, groups of the inputs if they are kept, and pairs of two of
    these. A field of the metadata with recorded answers is left out: where the baseline was right by luck, it can only
    get worse. Metrics are those of evaluators that may decide, or the given ones.
    """
    return _search(pair, metrics)[0]


def slice_check(decision_id: str, pair: ExperimentPair, metrics: Sequence[str]) -> CheckRow:
    """Search slices for a gate's decision; return the search and all slices that were searched as a check."""
    search, searched = _search(pair, metrics)
    found = {(row.metric, row.slice) for row in search.found}
    slices = [asdict(row) | {"stands_out": (row.metric, row.slice) in found} for row in searched]
    return CheckRow(
        check_id=derived_id(decision_id, SLICES),
        batch_id=decision_id,
        subject_kind="experiment",
        subject_id=pair.candidate.experiment_id,
        name=SLICES,
        passed=not found if searched else None,
        severity="warning",
        n_checked=search.n_slices,
        n_unexpected=len(found),
        observed=to_json({"search": asdict(search), "slices": slices}),
    )


def _search(pair: ExperimentPair, metrics: Sequence[str]) -> tuple[SliceSearch, list[DepartingSlice]]:
    """Return a search, and each slice that was searched in each metric."""
    assert pair.matched is not None
    owner, level = pair.candidate.experiment_id, pair.spec.confidence_level
    places = pair.shared_places("")
    positions = pair.matched.candidate[places]
    examples = list(pair.reader.examples(pair.candidate.snapshot_id).rows(positions.tolist()))
    given = _of_answers(pair, [example.example_id for example in examples])
    if groups := pair.reader.input_groups(pair.candidate.snapshot_id):
        from evalflows.analysis.input_groups import named_groups  # late: it loads embeddings

        of_examples = [groups[index] for index in positions]
        given["group of inputs"] = named_groups(examples, of_examples, MIN_EXAMPLES, MAX_VALUES)
    slices = slices_of(examples, given, _recorded(pair))
    named, differences, signs = _differences(pair, metrics)
    clusters = None if pair.clusters is None else [pair.clusters[index] for index in positions]
    contrasts = contrasts_of(slices, differences, clusters, level)
    every = slices.all

    def row(contrast: SliceContrast) -> DepartingSlice:
        sign = signs[contrast.metric]
        low, high = sorted((sign * contrast.low, sign * contrast.high))
        return DepartingSlice(
            candidate_experiment_id=owner,
            metric=named[contrast.metric],
            slice=every[contrast.slice].name,
            where=every[contrast.slice].where,
            n_examples=contrast.n,
            difference=sign * contrast.within + 0.0,  # no -0
            difference_elsewhere=sign * contrast.outside + 0.0,
            low=low,
            high=high,
            p_adjusted=contrast.p_adjusted,
            is_worse=contrast.estimate < 0,
            is_loss=contrast.within < 0,
        )

    search = SliceSearch(
        candidate_experiment_id=owner,
        metrics=named,
        fields=sorted({field for single in slices.singles for field in single.fields}),
        min_examples=MIN_EXAMPLES,
        n_slices=len({contrast.slice for contrast in contrasts}),
        n_left_out=slices.n_left_out,
        found=[_with_own_interval(pair, row(c), every[c.slice]) for c in departing(slices, contrasts, level)],
        too_few=slices.too_few,
    )
    return search, [row(contrast) for contrast in contrasts]


def _with_own_interval(pair: ExperimentPair, found: DepartingSlice, of: Slice) -> DepartingSlice:
    """Return a slice that stands out with the interval of its own difference, by which it is worse or better."""
    assert pair.matched is not None
    matched = pair.matched.at(pair.shared_places("")[of.members])
    ours = matched.of_candidate(pair.values[found.metric])
    theirs = matched.of_baseline(pair.baseline_values[found.metric])
    paired = paired_metric(ours, theirs, matched.of_clusters(pair.clusters), pair.spec)
    difference = paired.difference(pair.spec.confidence_level)
    return replace(found, difference_low=difference.tested_low, difference_high=difference.tested_high)


def slices_of(
    examples: Sequence[ExampleRow], given: Given = MappingProxyType({}), left_out: Collection[str | None] = ()
) -> Slices:
    """Return the slices of examples that are searched; `left_out` are fields of the metadata."""
    fields = [*_fields(examples, left_out)]
    singles = [*_single([*fields, *((field, [*of], "") for field, of in given.items())], len(examples))]
    doubles, searched = _doubles(singles), {single.fields[0] for single in singles}
    few = [
        _sizes(field, values) for field, values, _ in fields if field.startswith(OWN_FIELDS) and field not in searched
    ]
    return Slices(
        singles=singles,
        doubles=doubles[:MAX_PAIRS],
        n_left_out=max(0, len(doubles) - MAX_PAIRS),
        too_few=[text for text in few if text],
    )


def _sizes(field: str, values: Sequence[Any]) -> str:
    """Return a field with its number of values and how many examples each has; empty if it has one, or too many."""
    sizes = sorted(Counter(as_key(value) for value in values if value is not None).values())
    if not 2 <= len(sizes) <= MAX_VALUES:
        return ""
    of = f"{sizes[0]} to {sizes[-1]}" if sizes[0] < sizes[-1] else f"{sizes[0]}"
    return f"{field} ({len(sizes)} values of {of} examples)"


def contrasts_of(
    slices: Slices, differences: npt.NDArray[np.float64], clusters: Sequence[str | None] | None, level: float
) -> list[SliceContrast]:
    """Return the contrast of each slice in each row of differences, where higher is better."""
    if not slices.singles or not len(differences):
        return []
    return slice_contrasts(
        differences,
        np.column_stack([s.members for s in slices.all]),
        n_first=len(slices.singles),
        clusters=clusters,
        min_examples=MIN_EXAMPLES,
        confidence_level=level,
    )


def departing(slices: Slices, contrasts: Sequence[SliceContrast], level: float) -> list[SliceContrast]:
    """Return the contrasts that are listed: those first that lost and are worse than elsewhere, by examples times
    loss."""
    significant = [contrast for contrast in contrasts if contrast.p_adjusted <= 1 - level + 1e-12]
    by_harm = sorted(significant, key=lambda c: (max(c.within, c.estimate) >= 0, _harm(c), c.estimate))
    return [*islice(_apart(by_harm, slices.all), LISTED)]


def _harm(contrast: SliceContrast) -> float:
    """Return examples times the departure. Equal ones differ by rounding: the stronger departure is then first."""
    return round(contrast.estimate * contrast.n, 6)


def _differences(pair: ExperimentPair, metrics: Sequence[str]) -> tuple[list[str], npt.NDArray[np.float64], list[int]]:
    """Return the metrics that are compared, their differences by example (higher is better), and for each metric 1 or
    -1 by its direction."""
    named, differences, signs = [], [], []
    for metric in metrics or [value for value in pair.values if value not in MEASURES]:
        paired = pair.paired(metric)
        if paired is None or pair.why_refused(metric) or pair.why_excluded(metric):
            continue
        named.append(metric)
        signs.append(1 if paired.scale.higher_is_better else -1)
        differences.append(signs[-1] * (paired.candidate.values - paired.baseline.values))
    return named, np.array(differences), signs


def _of_answers(pair: ExperimentPair, examples: Sequence[str]) -> dict[str, Sequence[Any]]:
    if pair.baseline is None:
        return {}
    found = pair.reader.answers_alike([pair.candidate.experiment_id, pair.baseline.experiment_id])
    return {field: [of.get(example) for example in examples] for field, of in found.items()}


def _recorded(pair: ExperimentPair) -> set[str | None]:
    """Return the fields of the metadata that have the answers of recorded targets, of both sides."""
    specs = [pair.spec, *([] if pair.baseline is None else [pair.reader.spec(pair.baseline)])]
    return {target.column for spec in specs for target in spec.targets if isinstance(target, RecordedTarget)}


def _single(fields: Iterable[tuple[str, list[Any], str]], n_examples: int) -> Iterator[Slice]:
    """Yield the slices of one field, each set of members once."""
    seen: set[bytes] = set()
    for field, values, expression in fields:
        for single in _of_field(field, values, expression):
            n = int(single.members.sum())
            if MIN_EXAMPLES <= n <= n_examples - MIN_EXAMPLES and (key := single.members.tobytes()) not in seen:
                seen.add(key)
                yield single


def _fields(examples: Sequence[ExampleRow], left_out: Collection[str | None]) -> Iterator[tuple[str, list[Any], str]]:
    """Yield each field of the examples: its path, its values (None if an example has none), and SQL that reads it."""
    yield "split", [example.split for example in examples], "split"
    yield "cluster", [example.cluster for example in examples], "cluster"
    for column in ("metadata", "inputs"):
        rows: list[Mapping[str, Any]] = [from_json(getattr(example, column)) or {} for example in examples]
        for name in dict.fromkeys(name for row in rows for name in row if '"' not in name):
            if column == "metadata" and name in left_out:
                continue
            values, path = [row.get(name) for row in rows], quoted(name if name.isidentifier() else f'$."{name}"')
            if any(isinstance(value, list) for value in values):
                lengths = [len(value) if isinstance(value, list) else None for value in values]
                yield f"length of {column}.{name}", lengths, f"json_array_length({column}, {path})"
            else:
                simple = [None if isinstance(value, dict) else value for value in values]
                yield f"{column}.{name}", simple, f"{column}->>{path}"
    yield "length of inputs", [len(example.inputs) for example in examples], "length(inputs)"  # after what people named


def _of_field(field: str, values: Sequence[Any], expression: str) -> Iterator[Slice]:
    """Yield the slices of one field: of each value if there are few, else of quarters if all are numbers. Without SQL
    that reads it, they have none."""
    keys = [None if value is None else as_key(value) for value in values]
    known = {key: value for key, value in zip(keys, values, strict=True) if key is not None}
    if len(known) <= MAX_VALUES:
        for key, value in known.items():
            where = f"{expression} = {quoted(key)}" if expression else ""
            if expression and _is_number(value):
                where = f"try_cast({expression} as double) = {key}"
            members = np.array([other == key for other in keys])
            yield Slice(fields=(field,), name=f"{field}={key}", where=where, members=members)
    elif all(map(_is_number, known.values())):
        yield from _quarters(field, values, f"try_cast({expression} as double)" if expression else "")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _quarters(field: str, values: Sequence[Any], number: str) -> Iterator[Slice]:
    numbers = np.array([np.nan if value is None else float(value) for value in values])
    edges = distinct(np.nanquantile(numbers, [0, 0.25, 0.5, 0.75, 1], method="inverted_cdf"))
    for low, high in pairwise(edges):
        is_first = low == edges[0]
        members = (numbers >= low if is_first else numbers > low) & (numbers <= high)
        where = f"{number} {'>=' if is_first else '>'} {low:.17g} and {number} <= {high:.17g}" if number else ""
        name = f"{field} {'from' if is_first else 'above'} {low:g} to {high:g}"
        yield Slice(fields=(field,), name=name, where=where, members=members)


def _doubles(singles: Sequence[Slice]) -> list[Slice]:
    """Return the slices of two fields that are large enough, the largest first."""
    seen = {single.members.tobytes() for single in singles}
    made: list[Slice] = []
    for first, second in combinations(singles, 2):
        if first.fields == second.fields:
            continue
        members = first.members & second.members
        if members.sum() < MIN_EXAMPLES or (key := members.tobytes()) in seen:
            continue
        seen.add(key)
        name = f"{first.name} and {second.name}"
        where = f"{first.where} and {second.where}" if first.where and second.where else ""
        made.append(Slice(fields=first.fields + second.fields, name=name, where=where, members=members))
    made.sort(key=lambda each: -int(each.members.sum()))
    return made


def _apart(departing: Sequence[SliceContrast], slices: Sequence[Slice]) -> Iterator[SliceContrast]:
    """Yield those that are not mostly the examples of one that came before, by metric and direction."""
    covered: dict[tuple[int, bool], Mask] = {}
    for contrast in departing:
        members, key = slices[contrast.slice].members, (contrast.metric, contrast.estimate > 0)
        before = covered.get(key, np.zeros_like(members))
        if (members & ~before).sum() >= NEW_SHARE * members.sum():
            covered[key] = before | members
            yield contrast
