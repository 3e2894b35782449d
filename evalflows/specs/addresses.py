"""Addresses and headers in specs, which may hold no secret."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

_SECRET = re.compile(r"auth|key|token|secret|passw|pwd|credential|signature|^(sig|code|sas)$", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Return whether a header or a query field holds a secret, by its name."""
    return bool(_SECRET.search(name))


def origin_of(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of an address: what must be equal for a header to go to both."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def secret_in(url: str) -> str | None:
    """Return which part of an address holds a secret, without the secret; None if none does."""
    if "@" in re.split("[/?#]", url.partition("://")[2])[0]:
        return "a user or a password"
    try:
        query = urlsplit(url).query
    except ValueError:
        return None
    names = [name for name, _ in parse_qsl(query, keep_blank_values=True) if names_secret(name)]
    return f"the query field {names[0]!r}" if names else None


def check_address(url: str, field: str) -> None:
    """Raise ValueError for what is no address of HTTP, or has a secret in it."""
    if secret := secret_in(url):
        raise ValueError(f"{field}: got {secret} in it, wanted a header from the environment")
    try:
        parts = urlsplit(url)
        is_valid = bool(re.match("https?://", url)) and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"{field}: got {url!r}, wanted http://… or https://…")


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise ValueError for a header that holds a secret, instead of naming its environment variable."""
    for name, value in headers.items():
        if (names_secret(name) or "cookie" in name.lower()) and not re.search(r"\$\{\w+\}", value):
            raise ValueError(f"headers: {name} holds a value, wanted ${{NAME}} of an environment variable")
