"""Masking secrets of production: each becomes a placeholder such as `<email-1>`, equal for equal secrets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.telemetry.secret_patterns import SecretPattern, is_card_number, is_credential_field

CREDENTIAL = "credential"


class Masking:
    """The masking of one example. Its placeholders are numbered by kind, so equal secrets stay equal in it."""

    def __init__(self, patterns: Sequence[SecretPattern]) -> None:
        self._patterns = patterns
        self._placeholders: dict[tuple[str, str], str] = {}
        self.counts: Counter[str] = Counter()
        """How many times a secret of each kind was replaced."""

    def value(self, value: Any) -> Any:
        """Return a JSON value without its secrets, those in names of fields included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self._field(str(name), of_field) for name, of_field in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(element) for element in value]
        if isinstance(value, int) and not isinstance(value, bool) and is_card_number(str(value)):
            return self._placeholder("card", str(value))
        return value

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        for pattern in self._patterns:
            text = self._masked(text, pattern)
        return text

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and value and is_credential_field(name):
            return self._placeholder(CREDENTIAL, value)
        return self.value(value)

    def _masked(self, text: str, pattern: SecretPattern) -> str:
        parts, place = [], 0
        for begins, ends in pattern.spans(text):
            parts += [text[place:begins], self._placeholder(pattern.kind, pattern.same(text[begins:ends]))]
            place = ends
        return "".join([*parts, text[place:]]) if parts else text

    def _placeholder(self, kind: str, secret: str) -> str:
        self.counts[kind] += 1
        if (kind, secret) not in self._placeholders:
            number = 1 + sum(known == kind for known, _ in self._placeholders)
            self._placeholders[kind, secret] = f"<{kind}-{number}>"
        return self._placeholders[kind, secret]
