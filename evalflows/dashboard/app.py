"""The routes of the dashboard: an address for each page, and what people send."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from evalflows.dashboard.access import Access
from evalflows.dashboard.given import Take, Taken, take_acknowledgement, take_label
from evalflows.dashboard.making import BusyError, Making
from evalflows.execution.server.addresses import prefect_ui
from evalflows.pages.compare import compare_page
from evalflows.pages.compare_example import compare_example_page
from evalflows.pages.comparison import comparison_page
from evalflows.pages.comparisons import comparisons_page
from evalflows.pages.decision import decision_page
from evalflows.pages.decisions import decisions_page
from evalflows.pages.example import example_page
from evalflows.pages.experiment import experiment_page
from evalflows.pages.experiments import experiments_page
from evalflows.pages.judge import judge_page
from evalflows.pages.judges import judges_page
from evalflows.pages.links import Links
from evalflows.pages.over_time import over_time_page
from evalflows.pages.page import Page, Site
from evalflows.pages.pairs import pair_page
from evalflows.pages.production import evaluation_page, incident_page, production_page
from evalflows.pages.proofs import PROOF, Proofs
from evalflows.pages.query import Query
from evalflows.pages.rendering import STATIC, render, whole_page
from evalflows.pages.review import review_page
from evalflows.pages.review_start import review_start_page
from evalflows.pages.traces import trace_page, traces_page
from evalflows.serving.origin import is_followed_link
from evalflows.specs.errors import InputError, NotFoundError, StorageError
from evalflows.store.parquet import Store
from evalflows.store.query_process import QueryProcesses
from evalflows.store.stop import Stop, StoppedError

PageOf = Callable[[Site, Query], Page]
"""Makes a page from the parameters of its address, path and query alike. Raises InputError for wrong ones."""

PAGES: Mapping[str, PageOf] = {
    "/experiments": experiments_page,
    "/experiments/{id}": experiment_page,
    "/experiments/{experiment}/example": example_page,
    "/over-time": over_time_page,
    "/compare": compare_page,
    "/compare/example": compare_example_page,
    "/pairwise": comparisons_page,
    "/pairwise/{id}": comparison_page,
    "/pairwise/{id}/pair": pair_page,
    "/decisions": decisions_page,
    "/decisions/{id}": decision_page,
    "/judges": judges_page,
    "/judges/{evaluator:path}": judge_page,
    "/production": production_page,
    "/production/evaluations/{name:path}": evaluation_page,
    "/production/incidents/{id}": incident_page,
    "/production/traces": traces_page,
    "/production/traces/{id}": trace_page,
    "/review": review_start_page,
    "/review/{subject}": review_page,
}
"""The pages by their address; `{name}` is a parameter."""

GIVEN: Mapping[str, Take] = {
    "/production/incidents/{id}/acknowledgements": take_acknowledgement,
    "/review/{subject}/labels": take_label,
}
"""What pages send, by its address."""

FRAGMENT = "fragment"
"""The parameter with which a page is sent without its frame, to be shown within another."""

_log = logging.getLogger(__name__)


def application(store: Store, token: str | None = None, making: Making | None = None) -> Starlette:
    """Return the dashboard of a store. With a token, only who has it is answered."""
    proofs, making, queries = Proofs(), making or Making(), QueryProcesses(store.layout.root)
    routes: list[BaseRoute] = [
        Route("/", lambda _: RedirectResponse("/experiments")),
        *(Route(path, _Shown(store, page, proofs, making, queries), methods=["GET"]) for path, page in PAGES.items()),
        *(Route(path, Taken(store, take, making).answer, methods=["POST"]) for path, take in GIVEN.items()),
        Route("/health", lambda _: JSONResponse({"status": "ok"})),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/{rest:path}", _Absent(store)),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Access, token=token)], lifespan=partial(_ending, queries))


@asynccontextmanager
async def _ending(queries: QueryProcesses, _: Starlette) -> AsyncIterator[None]:
    yield
    queries.close()


@dataclass(frozen=True, slots=True)
class _Shown:
    """Answers with a page. Pages are made in threads, since they read files."""

    store: Store
    page: PageOf
    proofs: Proofs
    making: Making
    queries: QueryProcesses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            answer = await self.making.run(partial(self._answer, request), receive)
        except (BusyError, StoppedError) as error:
            answer = _problem(self._site(Stop()), str(error), 503)
        await answer(scope, receive, send)

    def _answer(self, request: Request, stop: Stop) -> Response:
        site = self._site(stop)
        query = Query.of(_parameters(request), request.path_params)
        if self.proofs.is_of_form(query.text(PROOF)):
            return RedirectResponse(_proved(request, query, self.proofs), 303)
        try:
            page = self.page(site, query)
            return HTMLResponse(page.body if query.text(FRAGMENT) else whole_page(page, site))
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

    def _site(self, stop: Stop) -> Site:
        links = Links(prefect_ui=prefect_ui(), proofs=self.proofs)
        return Site(store=self.store, links=links, stop=stop, queries=self.queries)


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
    return [one for one in given if one[0] != PROOF] if is_followed_link(request) else given


def _proved(request: Request, query: Query, proofs: Proofs) -> str:
    """Return the address that a form leads to, with the proof of its condition instead of that of every condition."""
    rest = [one for one in _parameters(request) if one[0] != PROOF]
    where = query.text("where")
    return f"{request.url.path}?{urlencode([*rest, *([(PROOF, proofs.of(where))] if where else [])])}"


def _problem(site: Site, message: str, status: int) -> Response:
    body = render("problem.html", site, message=message)
    return HTMLResponse(
        whole_page(Page(title="Not found" if status == 404 else "This cannot be shown", body=body), site), status
    )
