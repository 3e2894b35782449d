"""Proofs that one of our own pages sent a condition in SQL: the address of a page may have been made by anybody."""

import hmac
import secrets
from hashlib import sha256

PROOF = "proof"
"""The parameter of an address, and the field of a form."""


class Proofs:
    """What proves conditions, by a secret of this process: other pages cannot make a proof, nor read one."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    @property
    def of_form(self) -> str:
        """What a form carries: it proves whatever condition is sent with it. It should not stay in an address."""
        return self._code(b"form")

    def of(self, condition: str) -> str:
        """Return what proves exactly this condition, for addresses."""
        return self._code(b"condition:" + condition.encode(errors="surrogatepass"))

    def hold(self, given: str | None, condition: str) -> bool:
        """Whether the given proof is one of this condition."""
        return given is not None and _is_same(given, self.of(condition))

    def is_of_form(self, given: str | None) -> bool:
        return given is not None and _is_same(given, self.of_form)

    def _code(self, text: bytes) -> str:
        return hmac.new(self._secret, text, sha256).hexdigest()


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogatepass"), wanted.encode())
