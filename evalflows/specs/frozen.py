"""`dataclass`, of which frozen classes are made in a seventh of the time: nothing of them is compiled but a
constructor, when the first object is made.

The standard library compiles six functions for each class, which is half of the time that importing evalflows takes.
"""

from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, MISSING, Field, FrozenInstanceError, InitVar, field, fields
from dataclasses import dataclass as standard
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ("dataclass",)

OPTIONS = {"frozen", "slots", "kw_only", "repr"}
"""Options of the classes that are made here."""

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Return a dataclass, as the standard library does, or what makes one of a class."""
        if cls is None:
            return lambda of: dataclass(of, **options)
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library writes the signature, which takes long
        bases = [base for base in reversed(cls.__mro__[1:]) if "__dataclass_fields__" in vars(base)]
        is_ours = options.get("frozen") and options.keys() <= OPTIONS
        if not is_ours or not all(map(_is_frozen, bases)) or not all(map(_is_field, cls.__annotations__.values())):
            return standard(cls, **options)
        own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        new = {
            name: _field(name, kind, own.pop(name, MISSING), kw_only=options.get("kw_only", False))
            for name, kind in cls.__annotations__.items()
        }
        inherited = {one.name: one for base in bases for one in fields(base)}
        found = inherited | new
        made = _standard_parts(**options) | _methods(found.values(), has_text=options.get("repr", True)) | own
        made |= {"__dataclass_fields__": found, "__qualname__": cls.__qualname__}
        if options.get("slots"):
            made |= {"__slots__": tuple(name for name in new if name not in inherited)} | _STATE
        made["__match_args__"] = tuple(name for name, one in found.items() if not one.kw_only)
        return type(cls)(cls.__name__, cls.__bases__, made)


def _is_frozen(base: type) -> bool:
    """Return whether a dataclass is frozen, as those that are made here."""
    return bool(vars(base)["__dataclass_params__"].frozen)


def _is_field(kind: object) -> bool:
    """Return whether an annotation is that of a field."""
    if isinstance(kind, str):
        return not kind.startswith(("ClassVar", "InitVar", "KW_ONLY"))
    return getattr(kind, "__origin__", kind) is not ClassVar and not isinstance(kind, InitVar) and kind is not KW_ONLY


def _field(name: str, kind: object, default: Any, *, kw_only: bool) -> Any:
    """Return the field of an annotation. Raise ValueError for a default that may change, as all objects share it."""
    if default.__class__.__hash__ is None:
        raise ValueError(f"mutable default {type(default)} for field {name} is not allowed: use default_factory")
    made: Any = default if isinstance(default, Field) else field(default=default)
    made.name, made.type, made._field_type = name, kind, _OF_FIELDS
    if made.kw_only is MISSING:
        made.kw_only = kw_only
    return made


@cache
def _standard_parts(**options: bool) -> dict[str, Any]:
    """Return what the standard library gives each class with these options, whatever its fields."""
    made = vars(standard(type("Model", (), {}), **options))
    return {name: made[name] for name in ("__dataclass_params__", "__replace__") if name in made}


def _methods(found: Collection[Field[Any]], *, has_text: bool) -> dict[str, Any]:
    methods = {"__init__": _LateConstructor(), "__setattr__": _refuse, "__delattr__": _refuse}
    methods |= {"__repr__": _text} if has_text else {}
    return methods | _comparison([one.name for one in found if one.compare])


class _LateConstructor:
    """The constructor of a class, which is compiled when it is first asked for."""

    def __set_name__(self, of: type, name: str) -> None:
        self._of = of

    def __get__(self, one: object, kind: type | None = None) -> Any:
        made = _constructor(self._of)
        self._of.__init__ = made  # type: ignore[misc]
        return made.__get__(one, kind)


def _constructor(cls: type) -> FunctionType:
    names: dict[str, Any] = {"MISSING": MISSING, "set_field": object.__setattr__}
    parameters: dict[bool, list[str]] = {False: ["self"], True: []}
    lines = []
    for one in fields(cls):
        name, value = one.name, one.name
        default = one.default
        if one.default_factory is not MISSING:
            names[f"new_{name}"], default = one.default_factory, None
            value = f"new_{name}() if {name} is MISSING else {name}"
        parameters[one.kw_only is True].append(name if default is MISSING else f"{name}=default_{name}")
        names[f"default_{name}"] = one.default
        lines.append(f" set_field(self, {name!r}, {value})")
    lines += [" self.__post_init__()"] * hasattr(cls, "__post_init__")
    keywords = ["*", *parameters[True]] if parameters[True] else []
    exec("\n".join([f"def __init__({', '.join([*parameters[False], *keywords])}):", *(lines or [" pass"])]), names)
    made: FunctionType = names["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


def _comparison(names: list[str]) -> dict[str, Callable[..., Any]]:
    if len(names) > 1:
        values: Callable[[object], tuple[Any, ...]] = attrgetter(*names)
    else:
        values = lambda one: tuple(getattr(one, name) for name in names)  # noqa: E731

    def is_equal(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": is_equal, "__hash__": lambda self: hash(values(self))}


@recursive_repr()
def _text(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot set or delete {name!r} of a frozen {type(self).__name__}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_STATE = {"__getstate__": _state, "__setstate__": _set_state}
"""How objects with slots are copied and pickled; those without have a `__dict__`."""


@standard
class _Model:
    one: int


_OF_FIELDS = fields(_Model)[0]._field_type  # type: ignore[attr-defined]
"""What marks a field, as neither of the class nor only of the constructor."""
