"""What people give on the pages: labels, and acknowledgements of incidents. It comes as JSON, and is stored at once."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from evalflows.analysis.human_labels.questions import question_about
from evalflows.analysis.human_labels.review import give_label
from evalflows.analysis.monitoring.incidents import acknowledge
from evalflows.dashboard.making import BusyError, Making
from evalflows.pages.query import Query
from evalflows.pages.review_settings import ReviewSettings
from evalflows.specs.errors import InputError, NotFoundError, StorageError
from evalflows.store.parquet import Store
from evalflows.store.queries.incidents import find_incident
from evalflows.store.stop import StoppedError

Fields = Mapping[str, str]
"""The texts of a JSON object; a text that is empty, and null, are left out."""

Take = Callable[[Store, Query, Fields], dict[str, Any]]
"""Stores what was sent, and returns what the page is told. Raises InputError for wrong fields."""

MOST_BYTES = 100_000
"""Largest size of what is sent."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """Answers to what a page sends, once it is stored; in JSON with `error` if it was not."""

    store: Store
    take: Take
    making: Making

    async def answer(self, request: Request) -> Response:
        query = Query.of(request.query_params.multi_items(), request.path_params)
        try:
            fields = await _fields(request)
            return JSONResponse(await self.making.run(lambda _: self.take(self.store, query, fields)))
        except NotFoundError as error:
            return JSONResponse({"error": str(error)}, 404)
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
    review = settings.review(store)
    question = question_about(review.reviewed, settings.asked)
    item, answer = (_wanted(fields, name) for name in ("item", "answer"))
    added = give_label(store, review, question, item, answer, fields.get("comment"))
    return {"label_id": added.label.label_id, "is_new": added.is_new}


def take_acknowledgement(store: Store, query: Query, fields: Fields) -> dict[str, Any]:
    """Store that a person acknowledges an incident or, with `close`, ends it, as `evalflows alerts ack` does."""
    incident = find_incident(store, query.wanted("id"))
    by, note, is_end = _wanted(fields, "by"), fields.get("note"), "close" in fields
    row = acknowledge(store, incident, by=by, note=note, close=is_end)
    return {"incident_id": incident.incident_id, "event": row.event}


async def _fields(request: Request) -> Fields:
    """Read a JSON object of texts. Raise InputError for anything else."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise InputError("got another content type, wanted application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise InputError(f"got more than {MOST_BYTES} bytes, wanted less")
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if not isinstance(content, dict) or not all(value is None or isinstance(value, str) for value in content.values()):
        raise InputError("got no JSON object of texts, wanted one")
    return {name: value.strip() for name, value in content.items() if value and value.strip()}


def _wanted(fields: Fields, name: str) -> str:
    if name not in fields:
        raise InputError(f"{name}: got none, wanted a text")
    return fields[name]
