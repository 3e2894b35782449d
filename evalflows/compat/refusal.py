"""Reject options of another project that are not supported here, instead of ignoring them."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from evalflows.specs.errors import InputError

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def refusing(**remedies: str) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Make a function raise InputError if one of these parameters is given a value other than its default.

    The values are the reasons, or what to do instead.
    """

    def decorated(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        signature = inspect.signature(function)
        where = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
            arguments = signature.bind(*args, **kwargs).arguments
            for name, remedy in remedies.items():
                default = signature.parameters[name].default
                if arguments.get(name, default) != default:
                    raise InputError(f"{where}: {name}: got {arguments[name]!r:.60}, wanted {default!r}: {remedy}")
            return function(*args, **kwargs)

        return call

    return decorated
