"""An HTTP client that reads no more of a response than allowed, and follows no redirect.

An endpoint could otherwise answer without end, or with a few kilobytes that unpack to gigabytes, and hand the prompt on
to another host.
"""

from typing import Any

import httpx2

from evalflows.specs.errors import CallError

MEGABYTE = 1 << 20
ENCODINGS = "gzip, deflate"
"""Encodings whose pieces unpack to about a thousand times their size at most."""

_OF_PACKED = (b"content-encoding", b"content-length", b"transfer-encoding")


class CappedClient(httpx2.AsyncClient):
    """A client for the user's application, and the base of that for the OpenAI SDK."""

    max_bytes: int

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Return the whole response. Raise CallError for one that cannot be read, or has over `max_bytes`, unpacked."""
        request.headers["accept-encoding"] = ENCODINGS
        try:
            response = await super().send(request, stream=True, **options)
        except httpx2.RemoteProtocolError as error:
            if _has_too_many_headers(error):
                raise _unreadable("the headers of the response are too large") from None
            raise
        try:
            body = await _body(response, self.max_bytes)
        finally:
            await response.aclose()
        unpacked = [(name, value) for name, value in response.headers.raw if name.lower() not in _OF_PACKED]
        whole = httpx2.Response(
            response.status_code, headers=unpacked, content=body, request=request, extensions=response.extensions
        )
        _check_text(whole)
        return whole


def _unreadable(message: str) -> CallError:
    return CallError("bad_answer", message, cost_is_unknown=True)


async def _body(response: httpx2.Response, max_bytes: int) -> bytes:
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", *ENCODINGS.split(", ")):
        raise _unreadable(f"the response is encoded as {encoding[:40]!r}, wanted {ENCODINGS} or none")
    parts, size = list[bytes](), 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > max_bytes:
            parts.clear()  # whoever keeps the error keeps this frame
            raise _unreadable(f"the response is larger than {max_bytes / MEGABYTE:g} MB (max_response_mb)")
        parts.append(chunk)
    return b"".join(parts)


def _has_too_many_headers(error: BaseException | None) -> bool:
    """Return whether h11 refused the headers for their size, for which servers would answer 431."""
    while error is not None:
        if getattr(error, "error_status_hint", None) == 431:
            return True
        error = error.__cause__ or error.__context__
    return False


def text_of(response: httpx2.Response) -> str:
    """Return the text of a response: in the charset that it names, else UTF-8, else Latin-1 if it is not UTF-8."""
    if response.charset_encoding is None:
        try:
            return response.content.decode("utf-8")
        except UnicodeDecodeError:
            return response.content.decode("latin-1")
    return response.text


def _check_text(response: httpx2.Response) -> None:
    """Raise CallError if a response names a charset that is none of texts, such as hex. The decoded text is kept."""
    try:
        _ = response.text
    except (AssertionError, LookupError, ValueError):
        named = (response.charset_encoding or "")[:40]
        raise _unreadable(f"the response has the charset {named!r}, wanted one of texts") from None


def redirect(response: httpx2.Response) -> str | None:
    """Return what a redirect says of its destination, without query and password; None for any other response."""
    if not response.has_redirect_location:
        return None
    try:
        to = response.url.join(response.headers["location"]).copy_with(query=None, fragment=None, userinfo=b"")
    except (httpx2.InvalidURL, ValueError):
        return f"HTTP {response.status_code}: redirects to no valid address"
    return f"HTTP {response.status_code}: redirects to {to}, wanted that address in the spec"
