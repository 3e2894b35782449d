"""Who may use the dashboard: programs and people on this machine, or who has the token; no page of another site.

People may come by a link on another site's page. They are shown a page, and nothing else is done.
"""

import hmac
from hashlib import sha256
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evalflows.serving.origin import refusal
from evalflows.serving.tokens import is_same

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
        if (problem := refusal(request, any_host=self._token is not None, links=True)) is not None:
            return _refused(403, problem)
        return None if self._token is None else self._login(request, self._token)

    def _login(self, request: Request, token: str) -> Response | None:
        """Check the token; one in the address is kept as a cookie, so that it stands in no history or log."""
        given = request.query_params.get(TOKEN)
        if given is not None and is_same(given, token):
            rest = [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN]
            answer = RedirectResponse(request.url.path + (f"?{urlencode(rest)}" if rest else ""), 303)
            answer.set_cookie(COOKIE, _session(token), httponly=True, samesite="strict")
            return answer
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        has_token = scheme.lower() == "bearer" and is_same(bearer.strip(), token)
        if has_token or is_same(request.cookies.get(COOKIE, ""), _session(token)):
            return None
        return _refused(401, f"got no token or another one, wanted the dashboard's: the address with ?{TOKEN}=…")


def _session(token: str) -> str:
    return hmac.new(token.encode(errors="surrogatepass"), b"session", sha256).hexdigest()


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
