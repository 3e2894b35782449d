"""Options of LangSmith's that have no meaning here: refused where they are given, rather than passed over."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from specs.errors import InputError

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def refusing(**remedies: str) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Make a function raise InputError where one of these parameters is given and is not its default.

    The texts say why, or what to do instead.
    """

    def decorated(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        signature = inspect.signature(function)
        where = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
            given = signature.bind(*args, **kwargs).arguments
            for name, remedy in remedies.items():
                default = signature.parameters[name].default
                if given.get(name, default) != default:
                    raise InputError(f"{where}: {name}: got {given[name]!r:.60}, wanted {default!r}: {remedy}")
            return function(*args, **kwargs)

        return call

    return decorated
