"""Tokens that requests must have."""

import hmac

from evalflows.specs.errors import InputError


def usable_token(given: str | None) -> str | None:
    """Return a token as it was given; None for none, and for an empty one.

    Raise InputError, without showing it, for one that clients would send in different ways, or not at all.
    """
    if not given:
        return None
    if not given.isascii() or not given.isprintable() or given != given.strip():
        raise InputError("--token: got other characters, wanted printable ASCII without spaces around it")
    return given


def is_same(given: str, wanted: str) -> bool:
    """Whether two texts are the same, in a time that does not depend on where they differ."""
    return hmac.compare_digest(_bytes(given), _bytes(wanted))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
