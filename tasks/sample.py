"""Which examples an evaluator judges, where it judges a sample of them."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specs.errors import InputError
from specs.evaluator import EvaluatorSpec, as_key
from store.records import ExampleRow
from tasks.subject import value_at


@dataclass(frozen=True, slots=True)
class Sample:
    """The examples that were drawn, and for every example the share of its kind that was: 0 to 1, without 0."""

    drawn: frozenset[str]
    rates: Mapping[str, float]


def draw(spec: EvaluatorSpec, examples: Sequence[ExampleRow]) -> Sample | None:
    """The sample of an evaluator; None for one that judges all.

    Of every value of `sample_by` its rate is drawn, of the others together `sample_rate`: rounded, and one at least.
    The draw goes by a hash of seed and id, so that it is the same for every target, evaluator and resumption, and a
    smaller sample is part of a larger one. An example without the field is one of the others. Raises InputError where
    no example has any of the values.
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
        chosen = sorted(members, key=lambda identity: _lot(spec.sample_seed, identity))[: _count(rate, len(members))]
        drawn.update(chosen)
        rates.update(dict.fromkeys(members, len(chosen) / len(members)))
    return Sample(frozenset(drawn), rates)


def _count(rate: float, among: int) -> int:
    return max(1, math.floor(rate * among + 0.5))


def _lot(seed: int, identity: str) -> bytes:
    return hashlib.sha256(f"{seed} {identity}".encode()).digest()


def _value(spec: EvaluatorSpec, example: ExampleRow) -> str | None:
    """Its value of the field, as a key; None where it has no such field."""
    if spec.sample_by is None:
        return None
    try:
        return as_key(value_at(example, spec.sample_by))
    except InputError:
        return None
