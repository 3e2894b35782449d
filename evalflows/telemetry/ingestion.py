"""Langfuse's ingestion API: batches of events, each of which creates a trace, an observation or a score.

Older SDKs send everything so; current ones send spans by OpenTelemetry, and scores so.
"""

import json
from collections.abc import Mapping
from typing import Any

from evalflows.specs.errors import InputError, describe
from evalflows.store.records import new_id, now
from evalflows.telemetry.exports import add_observation, add_score, add_trace
from evalflows.telemetry.feedback import Telemetry

_CREATES, _UPDATES = "-create", "-update"
_NOTES = "sdk-log"
UNREADABLE = (InputError, TypeError, ValueError, LookupError, AttributeError)


class Ingested:
    """The rows of a batch, and what is answered: an entry for each event, by its id."""

    def __init__(self, content: Any) -> None:
        """Read a batch. Raise InputError if it is none."""
        events = content.get("batch") if isinstance(content, dict) else None
        if not isinstance(events, list):
            raise InputError("body: got no batch, wanted {batch: [{id, type, timestamp, body}]}")
        self.telemetry = Telemetry()
        self.successes: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self._made: dict[str, dict[str, Any]] = {}  # observations by id: a later event changes them
        for event in events:
            self._read(event)
        for identity, record in self._made.items():
            try:
                add_observation(self.telemetry, record)
            except UNREADABLE as error:
                self._refuse(identity, error)

    @property
    def answer(self) -> dict[str, Any]:
        return {"successes": self.successes, "errors": self.errors}

    def _read(self, event: Any) -> None:
        fields: Mapping[str, Any] = event if isinstance(event, dict) else {}
        identity, kind, body = str(fields.get("id")), str(fields.get("type")), fields.get("body")
        try:
            if not isinstance(body, dict):
                raise InputError(f"body: got {type(body).__name__}, wanted an object")
            record = {"timestamp": fields.get("timestamp"), **body}
            if kind == "trace-create":
                add_trace(self.telemetry, {"id": identity, **record})
            elif kind == "score-create":
                add_score(self.telemetry, _score(record, identity))
            elif kind.endswith((_CREATES, _UPDATES)) and (own := body.get("id")) is not None:
                self._observed(str(own), kind, record)
            elif kind != _NOTES:
                raise InputError(f"got the type {kind[:40]!r}, or no id, wanted trace-create, score-create or such")
        except UNREADABLE as error:
            self._refuse(identity, error)
        else:
            self.successes.append({"id": identity, "status": 201})

    def _observed(self, identity: str, kind: str, record: dict[str, Any]) -> None:
        if kind.endswith(_UPDATES) and identity not in self._made and record.get("startTime") is None:
            raise InputError("got an update without its startTime or its creation in one batch, wanted either")
        type_ = str(record.get("type") or kind.rpartition("-")[0]).upper()
        start = {"startTime": record["timestamp"]} if identity not in self._made else {}
        given = {name: value for name, value in record.items() if value is not None and name != "timestamp"}
        self._made.setdefault(identity, {}).update(start | given | {"type": type_})

    def _refuse(self, identity: str, error: Exception) -> None:
        message = str(error) if isinstance(error, InputError) else describe(error)
        self.errors.append({"id": identity, "status": 400, "message": message})
        self.telemetry.rejected.append(f"{identity[:60]}: {message}")


def _score(record: Mapping[str, Any], event: str) -> dict[str, Any]:
    """Return a score as exports have it: its text apart from its number, and where it came from."""
    if not any(record.get(name) for name in ("traceId", "sessionId")):
        raise InputError("got neither traceId nor sessionId, wanted what the score is about")
    if "name" not in record or record.get("value") is None:
        raise InputError("got a score without a name or a value, wanted both")
    text = {"stringValue": record["value"]} if isinstance(record["value"], str) else {}
    return {"source": "API", "id": event, **text, **record}


def batch_of_scores(body: bytes) -> bytes:
    """Return a score, or a list of scores, as a batch. Raise InputError if it is neither."""
    try:
        given = json.loads(body)
    except ValueError as error:
        raise InputError(f"body: not JSON: {error}") from error
    if not isinstance(given, dict | list):
        raise InputError(f"body: got {type(given).__name__}, wanted a score or a list of scores")
    return json.dumps(
        {"batch": [_event_of(score) for score in (given if isinstance(given, list) else [given])]}
    ).encode()


def _event_of(score: Any) -> dict[str, Any]:
    fields: Mapping[str, Any] = score if isinstance(score, dict) else {}
    identity = str(fields.get("id") or new_id("score"))
    body = {**fields, "id": identity} if fields else score
    return {"id": identity, "type": "score-create", "timestamp": now().isoformat(), "body": body}


def answer_to_scores(answer: Mapping[str, Any], *, is_list: bool) -> tuple[dict[str, Any], int]:
    """Return what a request of scores is answered, and its status."""
    successes, errors = answer["successes"], answer["errors"]
    if not is_list:
        return ({"message": errors[0]["message"]}, 400) if errors else ({"id": successes[0]["id"]}, 200)
    if not errors:
        return {"message": "Accepted"}, 202
    return {"accepted": len(successes), "rejected": len(errors), "errors": errors}, 207
