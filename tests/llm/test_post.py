"""Posting to an application: the request that is sent, and how the response is read."""

import json

import pytest
from http_application import SECRET, Application, Reply, cuts, failure, post, says, sends, spec

from evalflows.llm import loop
from evalflows.llm.post import headers_of, poster
from evalflows.specs.errors import InputError

# The request


@pytest.mark.parametrize("body", [{"q": "Où? 问题 \n", "n": [1, None, True, 1.5]}, [], ["a"], "text", 0, False, {}])
def test_the_body_is_posted_as_json(application: Application, body: object) -> None:
    post(application, body=body)
    ((line, headers, sent),) = application.requests
    assert (line, headers["content-type"], json.loads(sent)) == ("POST /answer", "application/json", body)


def test_the_query_of_the_address_is_kept(application: Application) -> None:
    application.url += "/v1?mode=fast&x=%20"
    post(application)
    assert application.requests[0][0] == "POST /answer/v1?mode=fast&x=%20"


def test_headers_are_sent_with_the_values_of_the_environment(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_KEY", SECRET)
    post(application, headers={"Authorization": "Bearer ${APP_KEY}", "X-Version": "2", "Content-Type": "x/json"})
    (headers,) = application.headers()
    sent = headers["authorization"], headers["x-version"], headers["content-type"]
    assert sent == (f"Bearer {SECRET}", "2", "x/json")


def test_an_unset_environment_variable_in_a_header_is_refused_before_posting(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APP_KEY", raising=False)
    monkeypatch.setenv("OTHER", SECRET)
    target = spec(application, headers={"X-A": "${OTHER}", "Authorization": "Bearer ${OTHER} ${APP_KEY}"})
    for make in (poster, headers_of):
        with pytest.raises(InputError) as caught:
            make(target)
        said = "target 'app': headers: Authorization: the environment variable APP_KEY is not set"
        assert str(caught.value) == said
    assert application.requests == []


def test_two_targets_at_one_address_send_their_own_headers(application: Application) -> None:
    first, second = (poster(spec(application, headers={"X-Variant": name})) for name in ("a", "b"))
    for made in (first, second, first):
        loop.run(made({}))  # type: ignore[arg-type]
    assert [headers["x-variant"] for headers in application.headers()] == ["a", "b", "a"]


def test_cookies_are_not_kept_between_examples(application: Application) -> None:
    post(application, says(1, set_cookie="session=1; Path=/"))
    post(application)
    assert ["cookie" in headers for headers in application.headers()] == [False, False]


def test_cookies_of_an_interrupted_response_are_not_kept(application: Application) -> None:
    begun = b"HTTP/1.1 200 OK\r\nset-cookie: session=1; Path=/\r\ncontent-length: 10\r\n\r\n{"
    assert post(application, cuts(begun), says("Paris")).attempts == 2
    assert ["cookie" in headers for headers in application.headers()] == [False, False]


# The response


@pytest.mark.parametrize(
    ("reply", "response"),
    [
        (says({"answer": "Paris", "n": [1, None]}), {"answer": "Paris", "n": [1, None]}),
        (says("Paris"), "Paris"),
        (says(None), None),
        (says([]), []),
        (says(1, 201), 1),
        (sends(200, b' {"a": 1}\r\n', "text/html"), {"a": 1}),
        (sends(200, b'{"a": 1}', None), {"a": 1}),
        (sends(200, '{"a": "é"}'.encode(), "application/problem+json"), {"a": "é"}),
        (sends(200, '{"a": "é"}'.encode("latin-1"), "application/json; charset=latin-1"), {"a": "é"}),
        (sends(200, b"Paris, France", "text/plain"), "Paris, France"),
        (sends(200, "Zürich".encode("latin-1"), "text/plain; charset=iso-8859-1"), "Zürich"),
        (sends(200, "Zürich".encode(), "text/plain; charset=no-such"), "Zürich"),
        (sends(200, b"{not json", "text/plain"), "{not json"),
        (sends(200, b"", "text/plain"), ""),
        (sends(204, b"", None), ""),
    ],
    ids=lambda value: "" if callable(value) else repr(value),
)
def test_a_response_is_read_as_json_or_text(application: Application, reply: Reply, response: object) -> None:
    posted = post(application, reply)
    assert (posted.response, posted.attempts) == (response, 1)


@pytest.mark.parametrize("body", [b"", b"{", b"Paris", b"{'a': 1}", b'{"a": 1} {"a": 2}', b"<html>"])
def test_invalid_json_with_a_json_content_type_is_retried(application: Application, body: bytes) -> None:
    found = failure(application, *[sends(200, body)] * 2, attempts=2)
    said = "the response's content type is JSON, but its body is not"
    assert (found.kind, str(found), found.attempts) == ("bad_answer", said, 2)
    assert len(application.requests) == 2


def test_the_response_of_the_second_attempt_is_returned(application: Application) -> None:
    posted = post(application, sends(200, b"{"), says("Paris"))
    assert (posted.response, posted.attempts) == ("Paris", 2)


def test_json_may_begin_with_a_byte_order_mark(application: Application) -> None:
    assert post(application, sends(200, b'\xef\xbb\xbf{"a": 1}'), attempts=1).response == {"a": 1}


def test_too_deeply_nested_json_is_a_bad_answer(application: Application) -> None:
    assert failure(application, sends(200, b"[" * 100_000), attempts=1).kind == "bad_answer"
