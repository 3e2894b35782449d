"""Where the spec of a deployment's run may send environment variables and Secret blocks, and which it may use in paths.

Such a spec comes from a form or from Prefect's API: it could send the worker's keys to an address of its own. The
worker's owner says which address may receive what, by the shared connections and by `allowed_environment`. Elsewhere
the user gives the spec, and nothing is restricted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from evalflows.specs.errors import InputError, short
from evalflows.specs.permitted import own_settings

SETTING = "allowed_environment"
"""The table in `[tool.evalflows]` of the folder's pyproject.toml: lists of addresses by the variables' names."""

IN_PATHS = "paths"
"""Stands in such a list for the paths of files."""


VARIABLE = re.compile(r"\$\{(\w+)\}")
"""How a spec names an environment variable. What is filled in and what is checked must be the same."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a secret comes from."""

    kind: Literal["variable", "block"]
    name: str

    @property
    def noun(self) -> str:
        return "environment variable" if self.kind == "variable" else "Secret block"


@dataclass(frozen=True, slots=True)
class _Limits:
    file: Path
    addresses: Mapping[Source, Sequence[str]]


_limits: _Limits | None = None


def variable(name: str) -> Source:
    return Source("variable", name)


def restrict(folder: Path, defined: Mapping[Source, Sequence[str]]) -> None:
    """From now on, let specs in this process send a secret only to the addresses it is defined with, or allowed for.

    Raise InputError if the folder's pyproject.toml cannot be read.
    """
    global _limits
    file = folder.absolute() / "pyproject.toml"
    addresses = {source: list(urls) for source, urls in defined.items()}
    for name, allowed in _allowed(file).items():
        addresses.setdefault(variable(name), []).extend(allowed)
    _limits = _Limits(file, addresses)


def may_receive(url: str, source: Source) -> bool:
    """Whether a spec may send a secret to an address."""
    return _limits is None or any(_covers(address, url) for address in _limits.addresses.get(source, ()))


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
        if _limits is not None and IN_PATHS not in _limits.addresses.get(variable(name), ()):
            raise InputError(
                f"{text}: the environment variable {name} may not be used in paths; in a deployment's run wanted "
                f"{_setting(name, IN_PATHS, _limits)}"
            )


def variables_in(text: str) -> list[str]:
    """Return the name in each `${NAME}` of a text."""
    return VARIABLE.findall(text)


def _setting(name: str, place: str, limits: _Limits) -> str:
    return f'{name} = ["{place}"] under {SETTING} of [tool.evalflows] in {limits.file}'


def _covers(address: str, url: str) -> bool:
    """Whether a URL is an address, or below it.

    They are compared as texts, up to a slash after the host: programs differ in how they read odd URLs.
    """
    address = address.rstrip("/")
    rest = url.removeprefix(address)
    if not _has_host(address) or not url.startswith(address) or rest[:1] not in ("", "/"):
        return False
    return not any(part in (".", "..") for part in re.split(r"[/\\?#]", unquote(rest)))


def _has_host(address: str) -> bool:
    try:
        return bool(re.match("https?://", address)) and bool(urlsplit(address).hostname)
    except ValueError:
        return False


def _allowed(file: Path) -> dict[str, list[str]]:
    allowed = own_settings(file).get(SETTING, {})
    if not isinstance(allowed, dict):
        raise InputError(f"{file}: tool.evalflows.{SETTING}: got {short(allowed)}, wanted lists of addresses by name")
    for name, places in allowed.items():
        if not isinstance(places, list) or not all(_is_place(place) for place in places):
            raise InputError(
                f"{file}: tool.evalflows.{SETTING}.{name}: got {short(places)}, wanted a list of addresses "
                f'(http://… or https://…) and "{IN_PATHS}"'
            )
    return allowed


def _is_place(place: object) -> bool:
    return isinstance(place, str) and (place == IN_PATHS or _has_host(place))
