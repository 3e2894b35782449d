"""Samples of what an evaluator judges."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec, as_key
from evalflows.store.queries.example_slices import value_at
from evalflows.store.records import ExampleRow


@dataclass(frozen=True, slots=True)
class Sample:
    """The ids of the sampled examples, and the sampling rate of every example: its stratum's, above 0, at most 1."""

    drawn: frozenset[str]
    rates: Mapping[str, float]


def draw(spec: EvaluatorSpec, examples: Sequence[ExampleRow]) -> Sample | None:
    """Return the sample of an evaluator; None for one that judges all examples.

    Each value of `sample_by` in `sample_rates` is a stratum with its own rate; all other examples, also those without
    the field, form one stratum with `sample_rate`. Sizes are rounded, and at least 1. Examples are drawn by a hash of
    seed and id, so that the sample is the same for every target, evaluator and resumption, and smaller samples are
    part of larger ones. Raise InputError if no example has any of the values.
    """
    if not spec.is_sampled:
        return None
    strata: defaultdict[str | None, list[str]] = defaultdict(list)
    values = [_value(spec, example) for example in examples]
    if spec.sample_rates and not {*values} & {*spec.sample_rates}:
        got = ", ".join(sorted({value for value in values if value is not None})[:10]) or "no such field"
        wanted = ", ".join(spec.sample_rates)
        where = f"evaluator {spec.metric!r}: sample_rates"
        raise InputError(f"{where}: no example has {wanted} as its {spec.sample_by}, got {got}")
    for value, example in zip(values, examples, strict=True):
        strata[value if value in spec.sample_rates else None].append(example.example_id)
    drawn: set[str] = set()
    rates: dict[str, float] = {}
    for value, members in strata.items():
        rate = (spec.sample_rate or 1.0) if value is None else spec.sample_rates[value]
        in_turn = sorted(members, key=lambda member: hashlib.sha256(f"{spec.sample_seed} {member}".encode()).digest())
        chosen = in_turn[: max(1, math.floor(rate * len(members) + 0.5))]
        drawn.update(chosen)
        rates.update(dict.fromkeys(members, len(chosen) / len(members)))
    return Sample(frozenset(drawn), rates)


def _value(spec: EvaluatorSpec, example: ExampleRow) -> str | None:
    """Return the example's value of `sample_by` as a key; None if it has no such field."""
    if spec.sample_by is None:
        return None
    try:
        return as_key(value_at(example, spec.sample_by))
    except InputError:
        return None
