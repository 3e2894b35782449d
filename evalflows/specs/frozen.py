"""`dataclass`, of which frozen classes are made in a quarter of the time: only their constructor is compiled.

The standard library compiles six functions for each, which is half of the time that importing evalflows takes.
"""

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from dataclasses import dataclass as standard
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

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
        inherits = any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__)
        if inherits or not options.get("frozen") or not options.keys() <= OPTIONS:
            return standard(cls, **options)
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the signature would be looked for
        own = {*vars(cls)}
        made = standard(cls, **(options | {"frozen": False, "init": False, "repr": False, "eq": False}))
        made.__dataclass_params__.frozen = made.__dataclass_params__.eq = True
        methods = {"__init__": _constructor(made), "__setattr__": _refuse, "__delattr__": _refuse}
        methods |= {"__repr__": _text} if options.get("repr", True) else {}
        methods |= _comparison([field.name for field in fields(made) if field.compare])
        if options.get("slots"):
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in methods.items():
            if name not in own:
                setattr(made, name, method)
        return made


def _constructor(cls: type) -> Callable[..., None]:
    names: dict[str, Any] = {"MISSING": MISSING, "set_field": object.__setattr__}
    parameters: dict[bool, list[str]] = {False: ["self"], True: []}
    lines = []
    for field in fields(cls):
        name, value = field.name, field.name
        default = field.default
        if field.default_factory is not MISSING:
            names[f"new_{name}"], default = field.default_factory, None
            value = f"new_{name}() if {name} is MISSING else {name}"
        parameters[field.kw_only is True].append(name if default is MISSING else f"{name}=default_{name}")
        names[f"default_{name}"] = field.default
        lines.append(f" set_field(self, {name!r}, {value})")
    lines += [" self.__post_init__()"] * hasattr(cls, "__post_init__")
    keywords = ["*", *parameters[True]] if parameters[True] else []
    exec("\n".join([f"def __init__({', '.join([*parameters[False], *keywords])}):", *(lines or [" pass"])]), names)
    made: Callable[..., None] = names["__init__"]
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
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot set or delete {name!r} of a frozen {type(self).__name__}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
