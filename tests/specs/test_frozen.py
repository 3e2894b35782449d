"""Frozen dataclasses of our own behave as those of the standard library."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, field, replace
from functools import partial

import pytest

from evalflows.specs.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str | None = None
    place: int = field(default=3, compare=False)


@dataclass(frozen=True)
class One:
    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))


@dataclass(frozen=True)
class Two(One):
    other: int = 0


def test_it_behaves_as_a_standard_one() -> None:
    first, same, other = Ours(name="a"), Ours(name="a", place=9), Ours(name="b", tags=("x",))
    assert first == same and hash(first) == hash(same) and len({first, same, other}) == 2
    another: object = "a"
    assert first != other and first != another
    assert repr(other).endswith("Ours(name='b', tags=('x',), note=None, place=3)")
    assert asdict(other) == {"name": "b", "tags": ("x",), "note": None, "place": 3}
    assert replace(first, name="b", tags=("x",)) == other
    for made in (copy.copy(other), copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
        assert made == other and made.place == 3
    assert [*inspect.signature(Ours).parameters] == ["name", "tags", "note", "place"]
    assert One(1) == One(1.0) and One(float("nan")) != One(2.0) and Two(1, 2) != One(1) and Two(1, 2).other == 2
    nan = float("nan")
    assert One(nan) == One(nan), "values are compared as those of tuples"
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'name'"):
        Ours()  # type: ignore[call-arg]
    for change in (partial(setattr, first, "name", "c"), partial(delattr, first, "name")):
        with pytest.raises(FrozenInstanceError, match="'name'"):
            change()
