"""What other projects have and this one does not: options are refused instead of ignored, and absent names say what to
use instead."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass

Class = TypeVar("Class", bound=type)


@dataclass(frozen=True, slots=True)
class Absent:
    """What a project has and its counterpart here has not, each name with what to use instead."""

    names: Mapping[str, str]  # of modules
    methods: Mapping[str, str]
    page: str  # the page that lists what is supported

    def of_module(self, module: str) -> Callable[[str], Any]:
        """Return the `__getattr__` of a module: it raises ImportError for a name of the project that is absent here."""

        def absent(name: str) -> Any:
            if name in self.names:
                raise ImportError(f"{module}.{name}: not supported here: {self.names[name]}")
            raise AttributeError(f"module {module!r} has no attribute {name!r}; {self.page} lists what is supported")

        return absent

    def of_objects(self, where: str | None = None) -> Callable[[Class], Class]:
        """Return a decorator of classes whose objects, named `where`, raise AttributeError for what they do not have.

        Type checkers do not see it: they would accept any name.
        """

        def absent(found: Any, name: str) -> Any:
            remedy = self.methods.get(name, f"{self.page} lists what is supported")
            raise AttributeError(f"{where or type(found).__name__}.{name}: not supported here: {remedy}")

        def decorated(owner: Class) -> Class:
            owner.__getattr__ = absent  # type: ignore[attr-defined]
            return owner

        return decorated


Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def refusing(**remedies: str) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Make a function raise InputError if one of these parameters is given a value other than its default, and for
    arguments that it does not have.

    The values are the reasons, or what to do instead.
    """

    def decorated(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        signature = inspect.signature(function)
        where = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
            try:
                arguments = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                known = ", ".join(name for name in signature.parameters if not name.startswith("_") and name != "self")
                raise InputError(f"{where}: {error}, wanted only {known or 'no argument'}") from None
            for name, remedy in remedies.items():
                default = signature.parameters[name].default
                if arguments.get(name, default) != default:
                    raise InputError(f"{where}: {name}: got {arguments[name]!r:.60}, wanted {default!r}: {remedy}")
            return function(*args, **kwargs)

        return call

    return decorated


def refusing_unknown(owner: Class) -> Class:
    """Make the public methods of a class raise InputError for arguments that they do not have, if they do not yet."""
    for name, method in vars(owner).copy().items():
        if inspect.isfunction(method) and not name.startswith("_") and not hasattr(method, "__wrapped__"):
            setattr(owner, name, refusing()(method))
    return owner
