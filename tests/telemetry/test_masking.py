"""What is masked in production's texts, and what stays."""

from typing import Any

import pytest

from evalflows.telemetry.masking import SECRETS, Masking, patterns_with


def masked(value: Any, **own: str) -> Any:
    return Masking(patterns_with(own)).value(value)


HEX, ALPHABET = "0123456789abcdef", "aB3dE5gH7jK9mN1pQ3sT5vW7yZ"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mail ada.lovelace+x@mail.example.org now", "mail <email-1> now"),
        ("café: josé@exämple.org", "café: <email-1>"),
        ("card 4111 1111 1111 1111 12/27", "card <card-1> 12/27"),
        ("4111-1111-1111-1111 or 4111111111111111", "<card-1> or <card-1>"),
        ("order 12 4111 1111 1111 1111", "order 12 <card-1>"),
        ("to DE89 3704 0044 0532 0130 00 please", "to <iban-1> please"),
        ("NO93 8601 1117 947 paid", "<iban-1> paid"),
        ("ip 192.168.17.254.", "ip <ipv4-1>."),
        ("call +1-212-555-0123 or (212) 555-0123", "call <phone-1> or <phone-2>"),
        ("call 0171/1234567 or (030) 1234567 or 01711234567", "call <phone-1> or <phone-2> or <phone-1>"),
        ("call 0044 20 7946 0958", "call <phone-1>"),
        (f"OPENAI_API_KEY=sk-ant-api03-{ALPHABET}", "OPENAI_API_KEY=<api-key-1>"),
        (f"hf_{ALPHABET} AIza{ALPHABET}{ALPHABET[:9]}", "<api-key-1> <api-key-2>"),
        (f"sk-lf-{HEX[:8]}-{HEX[:4]}-{HEX[:4]}-{HEX[:4]}-{HEX[:12]}", "<api-key-1>"),
        ("Authorization: Bearer abc.def-123456789==", "Authorization: Bearer <bearer-token-1>"),
        (f"Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{ALPHABET}", "Bearer <jwt-1>"),
        ('{"password": "hunter22"}', '{"password": "<credential-1>"}'),
        ('"{\\"api_key\\": \\"abc123456\\"}"', '"{\\"api_key\\": \\"<credential-1>\\"}"'),
        ("aws_secret_access_key = wJalr/K7MDENG+bPx", "aws_secret_access_key = <credential-1>"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nMIIE\nx=\n-----END RSA PRIVATE KEY----- b", "a <private-key-1> b"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE and cut off", "<private-key-1>"),
    ],
)
def test_secrets_are_masked(text: str, wanted: str) -> None:
    assert masked(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "version 1.2.3, 1.2.3.4.5 and 300.1.1.1",
        "on 2026-11-24 at 03:07:34+00:00, from 24/11/2026 to 01/12/2026",
        "order 4111111111111112",  # no check digit
        "NO93 8601 1117 948",  # no check digits
        "0af7651916cd43dd8448eb211c80319c and 550e8400-e29b-41d4-a716-446655440000",
        "the bearer of responsibilities; a password: forgotten; secret: none",
        "skip-this-long-name-with-many-parts, risk-assessment-of-the-year",
        "see https://example.org/a?b=c#d",
        "<email-1> and <card-2>",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert masked(text) == text


def test_equal_secrets_are_equal_in_all_fields_of_an_example() -> None:
    masking = Masking(SECRETS)
    inputs = masking.value({"messages": [{"role": "user", "content": "I am ada@example.org, not bob@example.org"}]})
    reference = masking.value({"to": ["BOB@example.org"], "n": 3, "is": True, "of": None, "share": 0.5})
    assert inputs == {"messages": [{"role": "user", "content": "I am <email-1>, not <email-2>"}]}
    assert reference == {"to": ["<email-2>"], "n": 3, "is": True, "of": None, "share": 0.5}
    assert masking.counts == {"email": 3}


def test_fields_of_credentials_are_masked_whatever_their_form() -> None:
    given = {"X-API-Key": "plain", "auth": {"Password": "correct horse", "user": "ada"}, "secret": ["a@b.example"]}
    assert masked(given) == {
        "X-API-Key": "<credential-1>",
        "auth": {"Password": "<credential-2>", "user": "ada"},
        "secret": ["<email-1>"],
    }


@pytest.mark.slow
def test_long_texts_are_masked_in_linear_time() -> None:
    """A pattern that backtracks would take hours on these."""
    for piece in ("a", "1", "1 ", "a.", "a@", "+1 ", "sk-", "eyJa.", "ab12 ", "-----BEGIN ", "password: ", "0 1-"):
        assert len(masked(piece * (40_000 // len(piece)))) > 0


def test_names_of_fields_and_numbers_are_masked() -> None:
    assert masked({"ada@example.org": 4111111111111111, "n": 4111111111111112}) == {
        "<email-1>": "<card-1>",
        "n": 4111111111111112,
    }
