"""Masking secrets and personal data of production: each becomes a placeholder such as `<email-1>`, equal for equal
secrets.

They prefer to mask too much over too little, but a number without the form of a secret stays.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from evalflows.specs.frozen import dataclass

Span = tuple[int, int]

_CREDENTIAL = "password|passwd|pwd|api[_-]?key|secret|secret[_-]?key|access[_-]?key|access[_-]?token|client[_-]?secret"

CREDENTIAL_FIELDS = frozenset(
    {"password", "passwd", "pwd", "passphrase", "secret", "apikey", "xapikey", "secretkey", "accesskey", "privatekey"}
    | {"clientsecret", "authorization", "accesstoken", "refreshtoken", "authtoken", "idtoken", "sessiontoken"}
    | {"secretaccesskey", "awssecretaccesskey", "cookie", "setcookie"}
)
"""Names of fields, without case and separators, whose text is a secret whatever its form."""

CREDENTIAL = "credential"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretPattern:
    """One kind of secret: a regular expression, and what finds the secret in its match."""

    kind: str  # names the placeholder: <email-1>
    pattern: re.Pattern[str]
    within: Callable[[str], Span | None] = lambda text: (0, len(text))  # the secret in a candidate, if it is one
    same: Callable[[str], str] = str  # equal for two spellings of one secret

    def spans(self, text: str) -> Iterator[Span]:
        """Yield where the secrets of this kind are in a text, from left to right."""
        name = "secret" if "secret" in self.pattern.groupindex else 0
        start = 0
        while found := self.pattern.search(text, start):
            begins = found.start(name)
            inner = self.within(found[name])
            if inner is not None:
                yield begins + inner[0], begins + inner[1]
            start = found.end(name) if inner is None else begins + inner[1]


def _without_separators(text: str) -> str:
    return re.sub(r"\W", "", text).upper()


def _parts(text: str) -> Iterator[Span]:
    """Yield the parts of a text that begin and end at its separators, the longest first."""
    words = [word.span() for word in re.finditer(r"\w+", text)]
    edges = [(first[0], last[1]) for first, last in combinations(words, 2)] + words
    yield from sorted(edges, key=lambda edge: edge[0] - edge[1])


def _part_that(is_secret: Callable[[str], bool]) -> Callable[[str], Span | None]:
    """Return what finds the longest part of a text that is a secret."""
    return lambda text: next((span for span in _parts(text) if is_secret(text[slice(*span)])), None)


def is_card_number(text: str) -> bool:
    """Return whether a text is the number of a payment card: 13 to 19 digits with the check digit of ISO/IEC 7812
    (Luhn)."""
    digits = [int(digit) for digit in text if digit.isdigit()]
    if not 13 <= len(digits) <= 19 or digits[0] not in range(2, 7):
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """Return whether a text is an account number with the check digits of ISO 13616 (modulo 97)."""
    compact = _without_separators(text)
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", compact):
        return False
    return int("".join(str(int(char, 36)) for char in compact[4:] + compact[:4])) % 97 == 1


def _phone(text: str) -> Span | None:
    return (0, len(text)) if 8 <= sum(char.isdigit() for char in text) <= 17 else None


_API_KEYS = r"""
    sk-[A-Za-z0-9_-]{20,}                          # OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse's secret keys
  | pk-lf-[0-9a-f-]{36}                            # Langfuse
  | lsv2_[a-z]{2}_[0-9a-f]{32}_[0-9a-f]{10}        # LangSmith
  | (?:gsk|xai|pplx|hf|r8|tgp_v1|fw)[_-][A-Za-z0-9_-]{24,}   # Groq, xAI, Perplexity, Hugging Face, Replicate, …
  | AIza[A-Za-z0-9_-]{35} | GOCSPX-[A-Za-z0-9_-]{28} | ya29\.[A-Za-z0-9_-]{20,}   # Google
  | (?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}            # Amazon
  | gh[pousr]_[A-Za-z0-9]{36,} | github_pat_[A-Za-z0-9_]{22,} | glpat-[A-Za-z0-9_-]{20,}
  | xox[a-z]-[A-Za-z0-9-]{10,} | xapp-[A-Za-z0-9-]{20,} | https://hooks\.slack\.com/services/[A-Za-z0-9/]{20,}
  | [rs]k_(?:live|test)_[A-Za-z0-9]{16,} | whsec_[A-Za-z0-9+/=]{24,}   # Stripe
  | (?:AC|SK)[0-9a-f]{32} | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}   # Twilio, SendGrid
  | dop_v1_[0-9a-f]{64} | shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}
"""

SECRETS = (
    SecretPattern(
        kind="private-key",
        pattern=re.compile(
            r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
    ),
    SecretPattern(kind="jwt", pattern=re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),
    SecretPattern(kind="api-key", pattern=re.compile(rf"(?<![A-Za-z0-9_])(?:{_API_KEYS})", re.VERBOSE)),
    SecretPattern(
        kind="bearer-token",
        pattern=re.compile(r"(?i:\bbearer)\s{1,5}(?P<secret>(?=[^\s\d]{0,200}\d)[A-Za-z0-9._~+/-]{12,}={0,2})"),
    ),
    SecretPattern(
        kind="credential",
        pattern=re.compile(
            rf"(?i)(?<![a-z])(?:{_CREDENTIAL})(?:\\?[\"'])?\s{{0,5}}[:=]\s{{0,5}}(?:\\?[\"'])?"
            r"(?P<secret>(?=[^\s\"'<]{0,200}\d)[^\s\"'\\,;&<>{}]{6,})"
        ),
    ),
    SecretPattern(
        kind="email",
        pattern=re.compile(r"(?<![\w.%+-])[\w.%+'-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[^\W\d_]{2,24}(?![\w-])"),
        same=str.casefold,
    ),
    SecretPattern(
        kind="iban",
        pattern=re.compile(r"(?<!\w)[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]{4}){2,7}(?:[ -]?[A-Za-z0-9]{1,4})?(?!\w)"),
        within=_part_that(is_iban),
        same=_without_separators,
    ),
    SecretPattern(
        kind="card",
        pattern=re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,30}(?![\w-])"),
        within=_part_that(is_card_number),
        same=_without_separators,
    ),
    SecretPattern(
        kind="ipv4",
        pattern=re.compile(
            r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?!\w|\.\d)"  # not 1.2.3.4.5
        ),
    ),
    SecretPattern(
        kind="phone",
        pattern=re.compile(
            r"(?<![\w.+-])(?:"
            r"(?:\+|00)[1-9](?:[ ().\-/]{0,3}\d){6,14}"  # international
            r"|(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}"  # North America
            r"|\(?0\d{2,5}\)?(?:[ /-]{1,3}\d{2,9}){1,5}|0\d(?:[ .-]\d{2}){4}|0[1-9]\d{8,10}"  # elsewhere, after a 0
            r")(?![\w-])"
        ),
        within=_phone,
        same=_without_separators,
    ),
)
"""The built-in patterns, in the order in which they are applied."""


def is_credential_field(name: str) -> bool:
    """Return whether the text of a field of this name is a secret, such as that of `api_key`."""
    return re.sub(r"[\W_]", "", name).lower() in CREDENTIAL_FIELDS


def patterns_with(own: Mapping[str, str]) -> tuple[SecretPattern, ...]:
    """Return the user's patterns, by kind, followed by the built-in ones."""
    return (*(SecretPattern(kind=kind, pattern=re.compile(text)) for kind, text in own.items()), *SECRETS)


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
        parts, start = [], 0
        for begins, ends in pattern.spans(text):
            parts += [text[start:begins], self._placeholder(pattern.kind, pattern.same(text[begins:ends]))]
            start = ends
        return "".join([*parts, text[start:]]) if parts else text

    def _placeholder(self, kind: str, secret: str) -> str:
        self.counts[kind] += 1
        if (kind, secret) not in self._placeholders:
            number = 1 + sum(known == kind for known, _ in self._placeholders)
            self._placeholders[kind, secret] = f"<{kind}-{number}>"
        return self._placeholders[kind, secret]
