"""What a person asks to have erased."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evalflows.specs.errors import InputError
from evalflows.store.records import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Names of what is to be erased. All that any of them names is."""

    examples: Sequence[str] = ()
    where: Mapping[str, str] = field(default_factory=dict)  # values of fields of examples' metadata, all of which hold
    dataset: str | None = None  # only examples of its versions, and their copies elsewhere
    traces: Sequence[str] = ()
    sessions: Sequence[str] = ()
    users: Sequence[str] = ()
    reviewers: Sequence[str] = ()
    kept: Sequence[str] = ()  # fields of examples' metadata that stay

    def __post_init__(self) -> None:
        """Raise InputError if nothing is named."""
        if self.dataset is not None and not (self.examples or self.where):
            raise InputError("dataset: got no example or field of metadata, wanted one that says what to erase in it")
        if not self.kinds:
            raise InputError("got nothing to erase, wanted an example, a trace, a session, a user or a reviewer")

    @property
    def kinds(self) -> list[str]:
        named = {
            "example": self.examples,
            "where": self.where,
            "trace": self.traces,
            "session": self.sessions,
            "user": self.users,
            "reviewer": self.reviewers,
        }
        return [kind for kind, names in named.items() if names]

    @property
    def text(self) -> str:
        """All names, in one order."""
        lists = (self.examples, self.traces, self.sessions, self.users, self.reviewers)
        return to_json([*(sorted(names) for names in lists), sorted(self.where.items()), self.dataset])


def hashed(text: str, salt: bytes | None = None) -> str:
    """Return a salted hash that is slow to make, so that names cannot be found by trying many."""
    salt = secrets.token_bytes(16) if salt is None else salt
    digest = hashlib.scrypt(text.encode("utf-8", "surrogatepass"), salt=salt, n=1 << 14, r=8, p=1, dklen=32)
    return f"scrypt:{salt.hex()}:{digest.hex()}"


def is_of(text: str, selector_hash: str) -> bool:
    """Whether a hash was made of this text."""
    name, _, rest = selector_hash.partition(":")
    salt = rest.partition(":")[0]
    return name == "scrypt" and selector_hash == hashed(text, bytes.fromhex(salt))
