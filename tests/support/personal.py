"""A store in which one person's words are in every column that holds texts, and another's beside them."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from production import BEGAN, trace, trace_id
from store_rows import make_row

from evalflows.store.observations import write_observations
from evalflows.store.records import derived_id, to_json
from evalflows.store.schemas import COMPARISON_TABLES, EXPERIMENT_TABLES, TABLES, schema_of
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

SECRET = "Erna Meier, Lindenweg 4"
OTHER = "Otto Frei, Seegasse 9"
EXAMPLES = ("erna", "otto")
WORDS = dict(zip(EXAMPLES, (SECRET, OTHER), strict=True))
USER = "user-erna@example.org"
REVIEWER = "Rita Prüferin"
EXPERIMENTS = ("exp-1", "exp-2")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def run_id(experiment: str, example: str) -> str:
    return derived_id(experiment, example, 0)


def fill(store: Store, *, sealed: bool = True) -> str:
    """Fill a store. Return the id of the snapshot."""
    rows = [
        {
            "id": name,
            "inputs": {"question": f"{words} asks"},
            "outputs": {"answer": f"{words} is told"},
            "metadata": {"customer_id": str(number), "note": words, "language": "de"},
            "attachments": {"file": words},
        }
        for number, (name, words) in enumerate(WORDS.items())
    ]
    snapshot = freeze(store, to_examples(enumerate(rows, 1), "rows"), name="faq", source="rows")
    for place, experiment in enumerate(EXPERIMENTS):
        fill_experiment(store, experiment, snapshot, place, sealed=sealed)
    fill_comparison(store, snapshot, sealed=sealed)
    check = {"subject_kind": "snapshot", "subject_id": snapshot, "batch_id": "checks-1", "check_id": "check-1"}
    observed = to_json({"partial_unexpected_list": [SECRET], "unexpected_percent": 50.0})
    store.publish("checks", "checks-1", [make_row("checks", observed=observed, message=f"such as {SECRET}", **check)])
    return snapshot


def fill_experiment(store: Store, experiment: str, snapshot: str, place: int, *, sealed: bool = True) -> None:
    outputs, scores, calls, labels = [], [], [], []
    for number, (name, words) in enumerate(WORDS.items()):
        run = run_id(experiment, name)
        of = {"experiment_id": experiment, "example_id": name, "run_id": run, "repetition": 0}
        failed = {"error": f"bad: {words}", "error_trace": f"line 1: {words}", "error_kind": "raised"}
        answer = to_json({"answer": f"{words} is answered"})
        steps = to_json([{"kind": "call", "inputs": words}])
        outputs.append(
            make_row(
                "outputs", outputs=answer, steps=steps, status="ok", length=20 + number, latency_s=0.5, **of, **failed
            )
        )
        score = {"subject_kind": "run", "subject_id": run, "metric": "tone", "value": 0.25 + number / 2}
        told = {"comment": f"{words} is polite", "metadata": to_json({"quoted": words, "tokens": 7})}
        scores.append(make_row("judgements", judgement_id=f"s-{run}", status="scored", **score, **of, **told, **failed))
        request = to_json({"messages": [{"content": words}]})
        call = {"request": request, "response": to_json({"text": words}), "error": words, "status": "ok"}
        for subject in (run, None):
            key = derived_id(experiment, name, subject).ljust(64, "0")
            made = {"call_id": f"c-{run}-{subject}", "call_key": key, "subject_id": subject, "cost_usd": 0.125}
            calls.append(make_row("calls", reusable=True, experiment_id=experiment, **call, **made))
        about = {"subject_kind": "run", "subject_id": run, "experiment_id": experiment, "metric": "tone", "value": 1.0}
        by = {
            "labeller": REVIEWER,
            "comment": f"{words} says more",
            "metadata": to_json({"chance": 0.5, "note": words}),
        }
        labels.append(make_row("labels", label_id=f"l-{run}", batch_id=f"labels-{experiment}", **about, **by))
    for table, rows in (("outputs", outputs), ("judgements", scores), ("calls", calls)):
        store.append(table, experiment, "p", rows)
    store.publish("labels", f"labels-{experiment}", labels)
    row = {"n_examples": 2, "repetitions": 1, "snapshot_id": snapshot, "run_group": f"group-{place}"}
    named = {"name": f"name-{place}", "evaluators": "[]", "state": "completed", "experiment_id": experiment}
    named["reason"] = f"none of 2 answered: bad: {SECRET}" if experiment == "exp-1" else "stopped"
    store.append("experiments", experiment, "start", [make_row("experiments", **row, **named)])
    if sealed:
        store.seal(experiment, EXPERIMENT_TABLES)


def fill_comparison(store: Store, snapshot: str, *, sealed: bool = True) -> None:
    judged, calls = [], []
    for name, words in WORDS.items():
        left, right = (run_id(experiment, name) for experiment in EXPERIMENTS)
        sides = {"left_run_id": left, "right_run_id": right, "shown_first": "left", "example_id": name}
        ids = {"left_experiment_id": EXPERIMENTS[0], "right_experiment_id": EXPERIMENTS[1], "experiment_id": "cmp-1"}
        said = {"comment": f"{words} wins", "metadata": to_json({"why": words}), "error": words, "error_trace": words}
        judged.append(
            make_row(
                "judgements",
                judgement_id=f"j-{name}",
                subject_kind="pair",
                winner="left",
                status="scored",
                **sides,
                **ids,
                **said,
            )
        )
        call = {"request": to_json({"pair": words}), "response": to_json({"text": words}), "status": "ok"}
        subject = derived_id(left, right, "left")
        made = {"call_id": f"c-{name}", "call_key": derived_id("pair", name).ljust(64, "0"), "experiment_id": "cmp-1"}
        calls.append(make_row("calls", subject_id=subject, reusable=True, **call, **made))
    of = {
        "reason": f"judged none: {SECRET}",
        "comparison_id": "cmp-1",
        "experiments": [*EXPERIMENTS],
        "snapshot_ids": [snapshot],
        "state": "completed",
    }
    store.append("judgements", "cmp-1", "p", judged)
    store.append("calls", "cmp-1", "p", calls)
    store.append(
        "comparison_sets", "cmp-1", "start", [make_row("comparison_sets", name="pairs", evaluators="[]", **of)]
    )
    if sealed:
        store.seal("cmp-1", COMPARISON_TABLES)


def fill_production(store: Store) -> None:
    """Three traces: two of Erna in one session, with a child span, and one of Otto."""
    day = BEGAN.date().isoformat()
    spans = []
    for name, words, user in (("a", SECRET, USER), ("b", SECRET, USER), ("c", OTHER, "otto")):
        long = f"{words} " * 100
        given = {
            "user.id": user,
            "note": words,
            "llm.token_count.prompt": "12",
            "llm.cost.total": "0.5",
            "openinference.span.kind": "LLM",
        }
        spans.append(
            trace(name, long, f"{words} hears", session="erna" if user == USER else "otto", version="1.4", **given)
        )
    child = trace("a", f"{SECRET} again", None, minute=1)
    extra = {"events": to_json([{"name": SECRET}]), "links": to_json([{"trace_id": "x", "attributes": {"a": SECRET}}])}
    spans.append(_changed(child, span_id="f" * 16, parent_id=spans[0].span_id, status_message=SECRET, **extra))
    write_observations(store, spans)
    owner = f"{evaluation_id('watch')}-{day}"
    scores, calls = [], []
    for name, words in (("a", SECRET), ("c", OTHER)):
        of = {"subject_kind": "trace", "subject_id": trace_id(name), "experiment_id": owner, "metric": "tone"}
        scores.append(make_row("judgements", judgement_id=f"t-{name}", comment=words, value=0.5, status="scored", **of))
        call = {"request": to_json({"trace": words}), "call_key": "1".ljust(64, name), "subject_id": trace_id(name)}
        calls.append(make_row("calls", call_id=f"t-{name}", experiment_id=owner, status="ok", reusable=True, **call))
    store.append("judgements", owner, "p", scores)
    store.append("calls", owner, "p", calls)


def _changed(row: Any, **fields: Any) -> Any:
    return type(row)(**{name: getattr(row, name) for name in type(row).__slots__} | fields)


def files_with(words: str, *folders: Path) -> list[str]:
    """The files below folders that have these words, in their bytes or in any column; `-` for JSON's escapes."""
    found = []
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        texts = [content.decode(errors="replace")]
        if path.suffix == ".parquet":
            texts += [*_texts(pq.read_table(path, partitioning=None))]
        if any(words in text or json.dumps(words)[1:-1] in text for text in texts):
            found.append(path.name)
    return found


def _texts(rows: pa.Table) -> Iterator[str]:
    for column in rows.columns:
        yield from (str(value) for value in column.to_pylist() if value is not None)


def figures(store: Store, without: Sequence[str] = ()) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, without the columns that hold texts, and the marts."""
    found = {}
    for table in TABLES:
        names = [field.name for field in schema_of(TABLES[table].record) if field.name not in (*TEXTS, *without)]
        found[table] = store.query(f"select {', '.join(names)} from source.{table} order by all")
    return found


TEXTS = (
    *("inputs", "reference_outputs", "metadata", "attachments", "outputs", "steps", "error", "error_trace", "comment"),
    *("request", "response", "call_key", "reusable", "message", "observed", "attributes", "contents", "events"),
    *("links", "resource", "status_message", "labeller", "reason"),
)
