"""What Langfuse's SDKs send besides spans: scores of traces that came by OpenTelemetry, and batches of old SDKs."""

from typing import Any

import pytest
from asking import Client

from evalflows.store import connect
from evalflows.store.store import Store

TRACE = "0af7651916cd43dd8448eb211c80319c"
AT = "2026-11-20T10:00:00Z"


def event(kind: str, body: dict[str, Any], identity: str) -> dict[str, Any]:
    return {"id": identity, "type": kind, "timestamp": AT, "body": body}


def test_scores_and_batches_are_stored(client: Client, store: Store) -> None:
    call = {"id": "g1", "traceId": "old", "name": "answer", "startTime": AT, "model": "gpt-4o-mini"}
    batch = [
        event("trace-create", {"id": "old", "name": "chat", "userId": "u1"}, "e1"),
        event("generation-create", call, "e2"),
        event("generation-update", {"id": "g1", "traceId": "old", "usage": {"input": 1000, "output": 100}}, "e3"),
        event("score-create", {"traceId": TRACE, "name": "helpful", "value": 1, "dataType": "BOOLEAN"}, "e4"),
        event("score-create", {"traceId": TRACE, "name": "mood", "value": "calm", "comment": "yes"}, "e5"),
        event("score-create", {"traceId": TRACE, "name": "good", "value": 0.5, "source": "ANNOTATION"}, "e6"),
        event("score-create", {"name": "of nothing", "value": 1}, "e7"),
        event("span-update", {"id": "unknown", "traceId": "old"}, "e8"),
    ]
    answered = client.http.post("/api/public/ingestion", json={"batch": batch})
    assert answered.status_code == 207
    assert [one["id"] for one in answered.json()["successes"]] == ["e1", "e2", "e3", "e4", "e5", "e6"]
    assert [(one["id"], one["status"]) for one in answered.json()["errors"]] == [("e7", 400), ("e8", 400)]
    alone = client.http.post("/api/public/scores", json={"id": "s1", "traceId": TRACE, "name": "stars", "value": 4})
    assert (alone.status_code, alone.json()) == (200, {"id": "s1"})
    several = [
        {"traceId": TRACE, "name": "polite", "value": 1.0, "dataType": "BOOLEAN"},
        {"name": "of nothing", "value": 1},
    ]
    for body, status in ((several[:1], 202), (several, 207)):
        assert client.http.post("/api/public/scores", json=body).status_code == status
    for path, body, status in (
        ("scores", {"name": "stars", "value": 4}, 400),
        ("scores", 3, 400),
        ("ingestion", {"events": []}, 400),
    ):
        assert client.http.post(f"/api/public/{path}", json=body).status_code == status, body
    client.receiver.stop()
    with connect() as catalog:
        scores = catalog.execute("select subject_id, metric, value, label from trace_scores order by metric").fetchall()
        polite = 2 * [(TRACE, "polite", 1, None)]  # each without an id of its own
        assert scores == [
            (TRACE, "helpful", 1, None),
            (TRACE, "mood", None, "calm"),
            *polite,
            (TRACE, "stars", 4, None),
        ]
        assert catalog.execute("select metric, value from trace_labels").fetchall() == [("good", 0.5)]
        kept = "select name, type, tokens_in, cost_usd from observations where model is not null"
        assert catalog.execute(kept).fetchall() == [("answer", "generation", 1000, pytest.approx(0.00021))]
