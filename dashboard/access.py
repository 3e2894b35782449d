"""Who may use the dashboard: programs and people on this machine, or who has the token; no other web page.

A page of another site that the same browser shows can send requests here, also under a name that it points to this
machine (DNS rebinding). So without a token only names of this machine are answered, and what changes the store must
come from one of our pages.
"""

import hmac
import ipaddress
from hashlib import sha256
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every answer."""

COOKIE = "evalflows"
TOKEN = "token"  # the name of a query's parameter


class Access:
    """Middleware: refuses who may not use the dashboard, and adds the headers that restrict what a page can do."""

    def __init__(self, application: ASGIApp, *, token: str | None) -> None:
        self._application, self._token = application, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        answer = self._refusal(Request(scope)) or self._application
        await answer(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that is not passed on; None for one that is."""
        if self._token is None:
            if not is_local(request.headers.get("host", "")):
                return _refused(403, "got another host name, wanted 127.0.0.1 or localhost")
        elif (answer := self._login(request, self._token)) is not None:
            return answer
        if request.method not in ("GET", "HEAD") and not comes_from_here(request):
            return _refused(403, "got a request of another site, wanted one of this dashboard's pages")
        return None

    def _login(self, request: Request, token: str) -> Response | None:
        """Check the token; one in the address is kept as a cookie, so that it stands in no history or log."""
        given = request.query_params.get(TOKEN)
        if given is not None and _is_same(given, token):
            rest = [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN]
            answer = RedirectResponse(request.url.path + (f"?{urlencode(rest)}" if rest else ""), 303)
            answer.set_cookie(COOKIE, _session(token), httponly=True, samesite="strict")
            return answer
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        has_token = scheme.lower() == "bearer" and _is_same(bearer.strip(), token)
        if has_token or _is_same(request.cookies.get(COOKIE, ""), _session(token)):
            return None
        return _refused(401, f"got no token or another one, wanted the dashboard's: the address with ?{TOKEN}=…")


def is_local(host: str) -> bool:
    """Whether a Host header names this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def comes_from_here(request: Request) -> bool:
    """Whether a request was sent by a page of this dashboard, or by a program that is no browser."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    return origin is None or origin.partition("://")[2] == request.headers.get("host")


def _session(token: str) -> str:
    return hmac.new(token.encode(), b"session", sha256).hexdigest()


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _refused(status: int, message: str) -> Response:
    return Response(f"evalflows: {message}\n", status, media_type="text/plain")


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message["headers"],
                *((name.encode(), value.encode()) for name, value in HEADERS.items()),
            ]
        await send(message)

    return sending
