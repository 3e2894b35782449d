"""Frozen dataclasses of our own behave as those of the standard library."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, field, replace
from functools import cached_property, partial
from typing import ClassVar

import pytest

from evalflows.specs.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str | None = None
    place: int = field(default=3, compare=False)


@dataclass(frozen=True, slots=True)
class One:
    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))


@dataclass(frozen=True, slots=True)
class Two(One):
    """It inherits."""

    kind: ClassVar[str] = "two"
    other: int = 0


@dataclass(frozen=True, slots=True)
class Three(One):
    other: int = 0
    value: float = 3.0


@dataclass(frozen=True, kw_only=True)
class Four(One):
    """It has no slots."""

    other: int = 0

    @cached_property
    def both(self) -> float:
        return self.value + self.other


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
    assert Two(1, 2).kind == "two" and [*asdict(Two(1))] == ["value", "other"] and Three() == Three(3, 0)
    one, three = vars(One), vars(Three)
    assert one["__match_args__"] == ("value",) and three["__slots__"] == ("other",), "a slot is of the first class"
    assert One(nan) == One(nan), "values are compared as those of tuples"
    four = Four(value=1, other=2)
    assert four.both == 3 and four == Four(value=1, other=2) == pickle.loads(pickle.dumps(four)) != Four(value=1)
    with pytest.raises(ValueError, match="mutable default"):
        dataclass(frozen=True, slots=True)(type("Shared", (), {"__annotations__": {"tags": list}, "tags": []}))
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'name'"):
        Ours()  # type: ignore[call-arg]
    for change in (
        partial(setattr, first, "name", "c"),
        partial(delattr, first, "name"),
        partial(setattr, four, "name", 3),
    ):
        with pytest.raises(FrozenInstanceError, match="'name'"):
            change()
