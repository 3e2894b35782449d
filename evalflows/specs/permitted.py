"""What the spec of a deployment's run may name: modules, files, environment variables and Secret blocks.

Such a spec comes from a form or from Prefect's API: it could send the worker's keys to an address of its own. The
worker's owner says which address may receive what, by the shared connections and by `allowed_environment`. Elsewhere
the user gives the spec, and nothing is restricted.
"""

import inspect
import os
import re
import socket
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from evalflows.specs.errors import InputError, short
from evalflows.specs.frozen import dataclass

OURS = "evalflows.evaluators"
"""The package of evalflows whose functions any spec may name."""

CODE_SETTING = "allowed_modules"
"""The list in `[tool.evalflows]` of the folder's pyproject.toml: further modules and packages that a spec may name."""

DEPLOYED_FROM = "EVALFLOWS_DEPLOYED_FROM"
"""The variable of a deployment's runs that says from where it was registered: HOST:FOLDER."""

ENVIRONMENT_SETTING = "allowed_environment"
"""The table in `[tool.evalflows]` of the folder's pyproject.toml: lists of addresses by the variables' names."""

IN_PATHS = "paths"
"""Stands in such a list for the paths of files."""

VARIABLE = re.compile(r"\$\{(\w+)\}")
"""How a spec names an environment variable. What is filled in and what is checked must be the same."""


def check_deployed_from(folder: Path) -> None:
    """Raise InputError if this process runs what another folder of this machine deployed: its spec is of other files.

    A worker on another machine has the files where it likes.
    """
    host, _, origin = os.environ.get(DEPLOYED_FROM, "").partition(":")
    if host == socket.gethostname() and origin != str(folder.resolve()):
        raise InputError(
            f"this deployment was registered from {origin}, wanted a worker that runs there, got one in {folder}: give "
            "the deployments of each folder their own work pool"
        )


@dataclass(frozen=True, slots=True)
class _Limits:
    folder: Path
    listed: tuple[str, ...]
    addresses: "Mapping[Source, Sequence[str]] | None" = None  # to which secrets may be sent; None: to all

    @property
    def file(self) -> Path:
        return self.folder / "pyproject.toml"


_limits: _Limits | None = None


def restrict(folder: Path) -> None:
    """From now on, let specs in this process name only modules and files below a folder, and the modules it lists.

    Raise InputError if the folder's pyproject.toml cannot be read.
    """
    global _limits
    _limits = _Limits(folder.absolute(), _listed_modules(folder / "pyproject.toml"))


def restricted_folder() -> Path | None:
    """Return the folder that specs in this process are restricted to; None if they are not restricted."""
    return None if _limits is None else _limits.folder


def check_module(reference: str, module: str) -> None:
    """Raise InputError if a spec may not name code of this module. The module is not imported."""
    if _limits is None or _is_listed(module, _limits) or _is_within(module, OURS):
        return
    top = module.partition(".")[0]
    places = _locations(top)
    if top != "evalflows" and (places is None or any(_is_in_folder(path, _limits) for path in places)):
        return
    raise InputError(f"{reference!r}: the module {module!r} is not in {_limits.folder}; {_wanted(top, _limits)}")


def check_step(reference: str, step: object) -> None:
    """Raise InputError for a module on the way to the code that a spec names: the named module has imported it."""
    if _limits is not None and inspect.ismodule(step):
        raise InputError(
            f"{reference!r}: leads through the module {step.__name__!r}; {_wanted(step.__name__, _limits)}"
        )


def check_code(reference: str, code: object) -> None:
    """Raise InputError if what a spec names can be called and was not defined in a module that the spec may name.

    Modules of the folder import others: `mine:system` may be code of `os`. An object that is neither a function nor a
    class is code of its class's module.
    """
    if _limits is None:
        return
    if any(name.startswith("__") for name in reference.partition(":")[2].split(".")):
        raise InputError(f"{reference!r}: got a name that begins with '__', {_wanted(None, _limits)}")
    if not callable(code):
        return
    module = _module_of(code if inspect.isroutine(code) or inspect.isclass(code) else type(code))
    file = getattr(sys.modules.get(module), "__file__", None)
    is_own = not _is_within(module, "evalflows") and file is not None and _is_in_folder(Path(file), _limits)
    if not is_own and not _is_listed(module, _limits) and not _is_within(module, OURS):
        top = module.partition(".")[0]
        raise InputError(f"{reference!r}: its code is in the module {module!r}; {_wanted(top, _limits)}")


def permitted_path(path: Path, given: str) -> Path:
    """Return a path that a spec names; without `..`, if specs are restricted. Raise InputError if it may not name it.

    Symbolic links in the folder may lead out of it: the folder's owner made them.
    """
    if _limits is None:
        return path
    normal = Path(os.path.normpath(path.absolute()))
    if not _is_below(normal, _limits.folder):
        raise InputError(f"{given}: not below {_limits.folder}, wanted a file there: a deployment's run reads no other")
    return normal if ".." in path.parts else path


def own_settings(file: Path) -> dict[str, Any]:
    """Return `[tool.evalflows]` of a pyproject.toml; empty if there is none. Raise InputError if it cannot be read."""
    import tomllib  # late: few read one

    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    own = content.get("tool", {}).get("evalflows", {})
    if not isinstance(own, dict):
        raise InputError(f"{file}: tool.evalflows: got {short(own)}, wanted a table")
    return own


def _listed_modules(file: Path) -> tuple[str, ...]:
    listed = own_settings(file).get(CODE_SETTING, [])
    if not isinstance(listed, list) or not all(isinstance(name, str) and name for name in listed):
        raise InputError(f"{file}: tool.evalflows.{CODE_SETTING}: got {short(listed)}, wanted a list of module names")
    return tuple(listed)


def _wanted(module: str | None, limits: _Limits) -> str:
    more = f"{module!r}" if module else "its module"
    return (
        f"in a deployment's run wanted code of that folder or an evaluator of evalflows, or {more} under "
        f"{CODE_SETTING} of [tool.evalflows] in {limits.file}"
    )


def _is_listed(module: str, limits: _Limits) -> bool:
    return any(_is_within(module, name) for name in limits.listed)


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _locations(top: str) -> list[Path] | None:
    """Return the files or folders of a module; none if it is built in. None without a module: the import says so."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # ValueError: a module without a spec, such as __main__
        return []
    if spec is None:
        return None
    if spec.has_location and spec.origin:
        return [Path(spec.origin)]
    return [Path(path) for path in spec.submodule_search_locations or ()]


def _module_of(code: object) -> str:
    """Return the module that defines a function or a class; for a built-in method, that of the object's class."""
    name = getattr(code, "__module__", None)
    return name if isinstance(name, str) else type(getattr(code, "__self__", code)).__module__


def _is_in_folder(path: Path, limits: _Limits) -> bool:
    """Return whether a module's file is the folder's own, and not of an environment that lies in the folder."""
    path = Path(os.path.normpath(path.absolute()))
    installed = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    if {"site-packages", "dist-packages"} & {*path.parts} or any(path.is_relative_to(lib) for lib in installed):
        return False
    return _is_below(path, limits.folder)


def _is_below(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder) or path.is_relative_to(folder.resolve())


@dataclass(frozen=True, slots=True)
class Source:
    """Where a secret comes from."""

    kind: Literal["variable", "block"]
    name: str

    @property
    def noun(self) -> str:
        return "environment variable" if self.kind == "variable" else "Secret block"


def variable(name: str) -> Source:
    return Source("variable", name)


def restrict_environment(defined: Mapping[Source, Sequence[str]]) -> None:
    """From now on, let restricted specs send a secret only to the addresses it is defined with, or allowed for.

    Raise InputError if the folder's pyproject.toml cannot be read.
    """
    global _limits
    assert _limits is not None, "wanted a restricted process"
    addresses = {source: list(urls) for source, urls in defined.items()}
    for name, allowed in _allowed(_limits.file).items():
        addresses.setdefault(variable(name), []).extend(allowed)
    _limits = replace(_limits, addresses=addresses)


def may_receive(url: str, source: Source) -> bool:
    """Return whether a spec may send a secret to an address."""
    addresses = None if _limits is None else _limits.addresses
    return addresses is None or any(_covers(address, url) for address in addresses.get(source, ()))


def check_sent(where: str, source: Source, shown: str, url: str) -> None:
    """Raise InputError if a spec may not send a secret, shown under this name, to an address. It is not read."""
    if _limits is None or may_receive(url, source):
        return
    wanted = "a shared connection with this key and base_url"
    if source.kind == "variable":
        wanted = f"{wanted}, or {_setting(shown, url.partition('?')[0], _limits)}"
    raise InputError(
        f"{where}: the {source.noun} {shown} may not be sent to {short(url)}; in a deployment's run wanted {wanted}"
    )


def check_in_paths(text: str) -> None:
    """Raise InputError if a spec may not use the variables of a path."""
    for name in variables_in(text):
        if _limits and _limits.addresses is not None and IN_PATHS not in _limits.addresses.get(variable(name), ()):
            raise InputError(
                f"{text}: the environment variable {name} may not be used in paths; in a deployment's run wanted "
                f"{_setting(name, IN_PATHS, _limits)}"
            )


def variables_in(text: str) -> list[str]:
    """Return the name in each `${NAME}` of a text."""
    return VARIABLE.findall(text)


def _setting(name: str, place: str, limits: _Limits) -> str:
    return f'{name} = ["{place}"] under {ENVIRONMENT_SETTING} of [tool.evalflows] in {limits.file}'


def _covers(address: str, url: str) -> bool:
    """Return whether a URL is an address, or below it.

    They are compared as texts, up to a slash after the host: programs differ in how they read odd URLs.
    """
    address = address.rstrip("/")
    rest = url.removeprefix(address)
    if not _has_host(address) or not url.startswith(address) or rest[:1] not in ("", "/"):
        return False
    return not any(segment in (".", "..") for segment in re.split(r"[/\\?#]", unquote(rest)))


def _has_host(address: str) -> bool:
    try:
        return bool(re.match("https?://", address)) and bool(urlsplit(address).hostname)
    except ValueError:
        return False


def _allowed(file: Path) -> dict[str, list[str]]:
    allowed = own_settings(file).get(ENVIRONMENT_SETTING, {})
    if not isinstance(allowed, dict):
        raise InputError(
            f"{file}: tool.evalflows.{ENVIRONMENT_SETTING}: got {short(allowed)}, wanted lists of addresses by name"
        )
    for name, places in allowed.items():
        if not isinstance(places, list) or not all(_is_place(place) for place in places):
            raise InputError(
                f"{file}: tool.evalflows.{ENVIRONMENT_SETTING}.{name}: got {short(places)}, wanted a list of addresses "
                f'(http://… or https://…) and "{IN_PATHS}"'
            )
    return allowed


def _is_place(place: object) -> bool:
    return isinstance(place, str) and (place == IN_PATHS or _has_host(place))
