"""Posting to an application: no key appears in an error message."""

from collections.abc import Callable
from typing import Any

import pytest
from http_application import SECRET, Application, failure, post, says, sends

from evalflows.specs.errors import CallError, InputError


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Return the settings of a target with this key."""

    def settings(value: str) -> dict[str, Any]:
        monkeypatch.setenv("APP_KEY", value)
        return {"headers": {"Authorization": "Bearer ${APP_KEY}"}, "attempts": 1}

    return settings


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_key_repeated_by_the_application_is_redacted(
    application: Application, key: Callable[[str], dict[str, Any]], status: int
) -> None:
    assert SECRET not in str(failure(application, says({"invalid": f"Bearer {SECRET}"}, status), **key(SECRET)))


@pytest.mark.parametrize("value", [f"{SECRET}\n", f"{SECRET}\r\n", f"{SECRET}\nX-Other: 1"], ids=repr)
def test_a_key_that_cannot_be_sent_is_redacted(
    application: Application, key: Callable[[str], dict[str, Any]], value: str
) -> None:
    try:
        post(application, **key(value))
    except (InputError, CallError) as error:
        assert SECRET not in str(error)


def test_a_truncated_key_is_redacted(application: Application, key: Callable[[str], dict[str, Any]]) -> None:
    reply = sends(400, b"x" * 490 + SECRET.encode(), "text/plain")
    assert SECRET[:6] not in str(failure(application, reply, **key(SECRET)))


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("abc", True), ("abcd", False)])
def test_values_too_short_for_a_key_are_not_redacted(
    application: Application, key: Callable[[str], dict[str, Any]], value: str, shown: bool
) -> None:
    found = str(failure(application, says(f"<{value}>", 401), **key(value)))
    assert (f"<{value}>" in found) is shown
    assert found.startswith("HTTP 401: ")


def test_a_non_ascii_key_is_redacted(application: Application, key: Callable[[str], dict[str, Any]]) -> None:
    try:
        post(application, **key(f"{SECRET}…"))
    except (InputError, CallError) as error:
        assert SECRET not in str(error)


@pytest.mark.parametrize("headers", [{"X A": "1"}, {"X-A": "two\nlines"}, {"": "1"}], ids=str)
def test_an_invalid_header_is_not_retried(application: Application, headers: dict[str, str]) -> None:
    with pytest.raises((InputError, CallError)) as caught:
        post(application, headers=headers, attempts=2)
    assert getattr(caught.value, "attempts", 1) == 1
    assert application.requests == []
