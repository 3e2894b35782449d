"""The routes of the dashboard: an address for each page, who may use it, and what people give: labels, examples and
files of datasets, and acknowledgements of incidents.

People may come by a link on another site's page. They are shown a page, and nothing else is done.
"""

import hmac
import json
import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evalflows.analysis.monitoring import acknowledge
from evalflows.analysis.reviewing import USD_PER_HOUR, Drawn, Effort, give_label, question_about
from evalflows.dashboard import datasets
from evalflows.dashboard.compare import compare_example_page, compare_page, compare_slices_page
from evalflows.dashboard.comparisons import comparisons_page
from evalflows.dashboard.decisions import decision_page, decisions_page
from evalflows.dashboard.experiments import example_page, experiment_page, experiments_page
from evalflows.dashboard.home import home_page
from evalflows.dashboard.judges import judge_page, judges_page
from evalflows.dashboard.links import PAGE_PROOF, PROOF, Links, Proofs
from evalflows.dashboard.making import BusyError, Making
from evalflows.dashboard.modes import mode_page, modes_map_page, modes_page, take_mode
from evalflows.dashboard.over_time import over_time_page
from evalflows.dashboard.pairs import comparison_page, pair_page
from evalflows.dashboard.production import evaluation_page, incident_page, production_page, trace_page, traces_page
from evalflows.dashboard.rendering import PICTURE, STATIC, Page, Query, Site, one_file, render, whole_page
from evalflows.dashboard.report_file import report_on, site_in_file
from evalflows.dashboard.review import ReviewSettings, review_page, review_start_page
from evalflows.dashboard.two_judges import two_judges_page
from evalflows.prefect_server import prefect_ui
from evalflows.reports.kept_comparisons import KeptComparisons
from evalflows.reports.markdown_pages import reported
from evalflows.reports.picture import card_of, picture
from evalflows.serving import is_followed_link, is_same, refusal
from evalflows.specs.errors import ChangedError, InputError, NotFoundError, StorageError
from evalflows.specs.frozen import dataclass
from evalflows.store.labels import SELECTION
from evalflows.store.queries.incidents import episode_of, find_incident
from evalflows.store.query_process import QueryProcesses
from evalflows.store.stop import Stop, StoppedError
from evalflows.store.store import Store

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
TEXTS, RAW = "evalflows_texts", "raw"  # the cookie of who wants texts as they are
YEAR_S = 365 * 24 * 3600

Fields = Mapping[str, str]
"""The texts of a JSON object; a text that is empty, and null, are left out."""

Take = Callable[[Store, Query, Any], dict[str, Any]]
"""Stores what was sent, and returns what the page is told. Raises InputError for wrong fields."""

Read = Callable[[Request], Awaitable[Any]]
"""Reads what was sent. Raises InputError for another content type, and for too much."""

MOST_BYTES, MOST_OF_DATASETS = 100_000, 20_000_000
"""Largest size of what is sent, and of a dataset's file or example."""

_log = logging.getLogger(__name__)

PageOf = Callable[[Site, Query], Page]
"""Makes a page from the parameters of its address, path and query alike. Raises InputError for wrong ones."""

PAGES: Mapping[str, PageOf] = {
    "/home": home_page,
    "/experiments": experiments_page,
    "/experiments/{id}": experiment_page,
    "/experiments/{experiment}/example": example_page,
    "/over-time": over_time_page,
    "/datasets": datasets.datasets_page,
    "/datasets/{name:path}": datasets.dataset_page,
    "/dataset-example": datasets.dataset_example_page,
    "/compare": compare_page,
    "/compare/example": compare_example_page,
    "/compare/slices": compare_slices_page,
    "/pairwise": comparisons_page,
    "/pairwise/{id}": comparison_page,
    "/pairwise/{id}/pair": pair_page,
    "/decisions": decisions_page,
    "/decisions/{id}": decision_page,
    "/two-judges": two_judges_page,
    "/judges": judges_page,
    "/judges/{evaluator:path}": judge_page,
    "/modes": modes_page,
    "/modes-map": modes_map_page,
    "/modes/{mode}": mode_page,
    "/production": production_page,
    "/production/evaluations/{name:path}": evaluation_page,
    "/production/incidents/{id}": incident_page,
    "/production/traces": traces_page,
    "/production/traces/{id}": trace_page,
    "/review": review_start_page,
    "/review/{subject}": review_page,
    "/review-drafts": datasets.draft_page,
}
"""The pages by their address; `{name}` is a parameter."""

FILE = "file"
"""The parameter with which a page is sent as a file."""

FRAGMENT = "fragment"
"""The parameter with which a page is sent without its frame, to be shown within another."""

MOST_KEPT = 20_000_000
"""Characters of the pages that are kept."""


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
        return _refused(401, f"got no token or a wrong one, wanted the dashboard's: the address with ?{TOKEN}=…")


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


@dataclass(frozen=True, slots=True)
class Taken:
    """Answers to what a page sends, once it is stored; in JSON with `error` if it was not."""

    store: Store
    read: Read
    take: Take
    making: Making
    proofs: Proofs

    async def answer(self, request: Request) -> Response:
        if not self.proofs.is_of_page(request.headers.get(PAGE_PROOF)):
            return JSONResponse({"error": "not sent by a page of this dashboard; reload the page"}, 403)
        query = Query.of(request.query_params.multi_items(), request.path_params)
        try:
            sent = await self.read(request)
            if isinstance(sent, bytes):  # reading a file may take long
                taken = await self.making.run(
                    lambda stop: self.take(self.store, query, datasets.SentFile(sent, stop)), request.receive
                )
            else:
                taken = await self.making.run(lambda _: self.take(self.store, query, sent))
            return JSONResponse(taken)
        except NotFoundError as error:
            return JSONResponse({"error": str(error)}, 404)
        except ChangedError as error:
            return JSONResponse({"error": str(error)}, 409)
        except InputError as error:
            return JSONResponse({"error": str(error)}, 400)
        except (StorageError, BusyError, StoppedError) as error:
            return JSONResponse({"error": str(error)}, 503)
        except Exception:
            _log.exception("%s", request.url.path)
            return JSONResponse({"error": "internal error: standard error has the traceback"}, 500)


def take_label(store: Store, query: Query, fields: Fields) -> dict[str, Any]:
    """Store a person's label of the item that a review's page has shown; its address says who labels what."""
    settings = ReviewSettings.of(query)
    review = settings.review(store, [fields["trace"]] if "trace" in fields else [])
    question = question_about(review.reviewed, settings.asked)
    item, answer = (_wanted(fields, name) for name in ("item", "answer"))
    effort = Effort.of(fields.get("seconds"), os.environ.get(USD_PER_HOUR))
    drawn = Drawn(fields.get("drawn"), fields.get("drawn_from", SELECTION)) if review.reviewed.is_traces else None
    added = give_label(store, review, question, item, answer, fields.get("comment"), effort=effort, drawn=drawn)
    return {"label_id": added.label.label_id, "is_new": added.is_new}


def take_acknowledgement(store: Store, query: Query, fields: Fields) -> dict[str, Any]:
    """Store that a person acknowledges an incident or, with `close`, ends it, as `evalflows alerts ack` does; and the
    others of its episode that are not over."""
    incident = find_incident(store, query.wanted("id"))
    by, note, is_end = _wanted(fields, "by"), fields.get("note"), "close" in fields
    open_ones = [incident for incident in episode_of(store, incident).incidents if not incident.is_over]
    rows = [acknowledge(store, open_one, by=by, note=note, close=is_end) for open_one in open_ones or [incident]]
    return {"incident_id": incident.incident_id, "event": rows[0].event}


async def _fields(request: Request) -> Fields:
    """Read a JSON object of texts, without blanks around them and empty ones."""
    texts = await _texts(request, MOST_BYTES)
    return {name: value.strip() for name, value in texts.items() if value.strip()}


async def _texts(request: Request, most: int = MOST_OF_DATASETS) -> Fields:
    """Read a JSON object of texts as they are, without null. Raise InputError for anything else."""
    try:
        content = json.loads(await _body(request, "application/json", most))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not all(value is None or isinstance(value, str) for value in content.values()):
        raise InputError("got no JSON object of texts, wanted one")
    return {name: value for name, value in content.items() if value is not None}


async def _file_content(request: Request) -> bytes:
    """Read a file. A page of another site may not send this content type without asking."""
    return await _body(request, "application/octet-stream", MOST_OF_DATASETS)


async def _body(request: Request, content_type: str, most: int) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != content_type:
        raise InputError(f"got another content type, wanted {content_type}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise InputError(f"got more than {most} bytes, wanted less")
    return bytes(body)


def _wanted(fields: Fields, name: str) -> str:
    if name not in fields:
        raise InputError(f"{name}: got none, wanted a text")
    return fields[name]


GIVEN: Mapping[str, tuple[Read, Take]] = {
    "/datasets": (_file_content, datasets.take_file),
    "/dataset-example": (_texts, datasets.take_example),
    "/modes/{mode}": (_texts, take_mode),
    "/production/incidents/{id}/acknowledgements": (_fields, take_acknowledgement),
    "/production/incidents/{id}/datasets": (_fields, datasets.take_incident),
    "/production/traces/{id}/datasets": (_fields, datasets.take_trace),
    "/review-drafts": (_texts, datasets.take_draft),
    "/review/{subject}/labels": (_fields, take_label),
    "/review/{subject}/datasets": (_fields, datasets.take_reviewed),
}
"""What pages send, by its address."""


def application(
    store: Store, token: str | None = None, making: Making | None = None, tools: Starlette | None = None
) -> Starlette:
    """Return the dashboard of a store, with the routes of `tools` for other programs. With a token, only who has it is
    answered. Raise InputError if what an hour of labelling costs is no number."""
    Effort.of(None, os.environ.get(USD_PER_HOUR))
    proofs, making, queries, kept = Proofs(), making or Making(), QueryProcesses(store.layout.root), _Kept()
    compared = KeptComparisons()
    routes: list[BaseRoute] = [
        Route("/", lambda request: RedirectResponse(str(request.url.replace(path="/home", scheme="", netloc="")))),
        *(
            Route(path, _Shown(store, page, proofs, making, queries, kept, compared), methods=["GET"])
            for path, page in PAGES.items()
        ),
        *(Route(path, Taken(store, *given, making, proofs).answer, methods=["POST"]) for path, given in GIVEN.items()),
        Route("/texts", _choose_texts, methods=["GET"]),
        Route("/health", lambda _: JSONResponse({"status": "ok"})),
        Mount("/static", StaticFiles(directory=STATIC)),
        *(tools.routes if tools else ()),
        Route("/{rest:path}", _Absent(store)),
    ]
    middleware = [Middleware(Access, token=token), Middleware(GZipMiddleware)]
    return Starlette(routes=routes, middleware=middleware, lifespan=partial(_ending, queries, tools))


@asynccontextmanager
async def _ending(queries: QueryProcesses, tools: Starlette | None, _: Starlette) -> AsyncIterator[None]:
    async with tools.router.lifespan_context(tools) if tools else nullcontext():
        yield
    queries.close()


class _Kept:
    """The pages that were asked for last, in one state of the store: those of an earlier one are forgotten, since texts
    in them may have been erased."""

    def __init__(self) -> None:
        self._pages: OrderedDict[Hashable, str] = OrderedDict()
        self._state: object = None
        self._lock = threading.Lock()

    def get(self, key: Hashable, state: object) -> str | None:
        with self._lock:
            if state != self._state:
                self._pages.clear()
                self._state = state
            return self._pages.get(key)

    def keep(self, key: Hashable, state: object, html: str) -> None:
        with self._lock:
            if state == self._state:
                self._pages[key] = html
            while sum(map(len, self._pages.values())) > MOST_KEPT:
                self._pages.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Shown:
    """Answers with a page. Pages are made in threads, since they read files."""

    store: Store
    page: PageOf
    proofs: Proofs
    making: Making
    queries: QueryProcesses
    kept: _Kept
    compared: KeptComparisons

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            answer = await self.making.run(partial(self._answer, request), receive)
        except (BusyError, StoppedError) as error:
            answer = _problem(self._site(request, Stop()), str(error), 503)
        await answer(scope, receive, send)

    def _answer(self, request: Request, stop: Stop) -> Response:
        query = Query.of(_parameters(request), request.path_params)
        site = site_in_file(self.store, []) if query.text(FILE) else self._site(request, stop)
        if self.proofs.is_of_form(query.text(PROOF)):
            return RedirectResponse(_proved(request, query, self.proofs), 303)
        try:
            state = None if query.text(FILE) else self.store.state()
            day = f"{site.now:%Y-%m-%d}"  # in which ages are said
            key = (_address(request), tuple(_parameters(request)), site.is_raw, prefect_ui(), day)
            if state is not None and (known := self.kept.get(key, state)) is not None:
                return HTMLResponse(known)
            with self.store.reading(once=True):
                page = self.page(site, query)
                if query.text(FILE):
                    return _file(page, site, is_picture=query.text(FILE) == PICTURE)
                html = page.body if query.text(FRAGMENT) else whole_page(page, site, _address(request))
            if state is not None and page.refresh_s is None and page.is_of_store:
                self.kept.keep(key, state, html)
            return HTMLResponse(html)
        except NotFoundError as error:
            return _problem(site, str(error), 404)
        except InputError as error:
            return _problem(site, str(error), 400)
        except StorageError as error:
            return _problem(site, str(error), 500)
        except StoppedError:
            raise
        except Exception:
            _log.exception("%s", request.url.path)
            return _problem(site, "internal error: the dashboard's standard error has the traceback", 500)

    def _site(self, request: Request, stop: Stop) -> Site:
        links = Links(prefect_ui=prefect_ui(), proofs=self.proofs)
        is_raw = request.cookies.get(TEXTS) == RAW
        return Site(
            store=self.store, links=links, stop=stop, compared=self.compared, queries=self.queries, is_raw=is_raw
        )


def _file(page: Page, site: Site, *, is_picture: bool) -> Response:
    """Return a report as a file, like `evalflows report`. Raise InputError for a page that is none."""
    has_picture = page.card or page.reported
    if not page.is_shared or (is_picture and not has_picture):
        raise InputError(f"{FILE}: got {page.title!r}, wanted an experiment, a comparison, a decision or an incident")
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", page.title).strip("-.")[:80] or "report"
    ending = "png" if is_picture else "html"
    headers = {"content-disposition": f'attachment; filename="{name}.{ending}"'}
    if is_picture:
        card = page.card() if page.card else card_of(reported(site.store, page.reported or ""))
        return Response(picture(card, site.now), media_type="image/png", headers=headers)
    whole = report_on(reported(site.store, page.reported)) if page.reported else one_file(page.title, [page], site)
    return HTMLResponse(whole, headers=headers)


def _address(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


async def _choose_texts(request: Request) -> Response:
    """Keep whether texts are shown raw or rendered, and go back to the page."""
    back = request.query_params.get("to", "/")
    is_ours = back.startswith("/") and not back.startswith(("//", "/\\"))
    answer = RedirectResponse(back if is_ours else "/", 303)
    if request.query_params.get("raw"):
        answer.set_cookie(TEXTS, RAW, httponly=True, samesite="strict", max_age=YEAR_S)
    else:
        answer.delete_cookie(TEXTS)
    return answer


@dataclass(frozen=True, slots=True)
class _Absent:
    """Answers for addresses without a page."""

    store: Store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        site = Site(store=self.store, links=Links(prefect_ui=prefect_ui()))
        await _problem(site, f"{scope['path']}: no such page", 404)(scope, receive, send)


def _parameters(request: Request) -> list[tuple[str, str]]:
    """Return the parameters of an address. Those that came by a link of another site prove no condition."""
    given = request.query_params.multi_items()
    return [pair for pair in given if pair[0] != PROOF] if is_followed_link(request) else given


def _proved(request: Request, query: Query, proofs: Proofs) -> str:
    """Return the address that a form leads to, with the proof of its condition instead of that of every condition."""
    rest = [parameter for parameter in _parameters(request) if parameter[0] != PROOF]
    where = query.text("where")
    return f"{request.url.path}?{urlencode([*rest, *([(PROOF, proofs.of(where))] if where else [])])}"


def _problem(site: Site, message: str, status: int) -> Response:
    body = render("problem.html", site, message=message)
    return HTMLResponse(
        whole_page(Page(title="Not found" if status == 404 else "This cannot be shown", body=body), site), status
    )
