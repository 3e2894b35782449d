"""Traces of production as a list, and one of them as a tree with everything that was said about it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import Any

from evalflows.pages.page import Page, Site
from evalflows.pages.proofs import PROOF
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.label_texts import label_text
from evalflows.specs.errors import InputError
from evalflows.specs.safe_text import json_text
from evalflows.store.open_owners import last_owner
from evalflows.store.queries.listed_traces import Verdict, listed_traces, observations_of_trace, verdicts_of_trace
from evalflows.telemetry.reading import trace_view
from evalflows.telemetry.tree import in_depth
from evalflows.telemetry.views import ObservationView, TraceView

IN_PAGE = 50
MOST = 500
DEEPEST = 12
"""Levels of the tree that are indented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One observation in its tree."""

    view: ObservationView
    depth: int
    verdicts: Sequence[Verdict]


def traces_page(site: Site, query: Query) -> Page:
    """The newest traces that meet a condition on the columns of the view traces.

    A condition is SQL, so it is run only if a page of ours sent it.
    """
    where, since = query.text("where"), query.text("since") or _recent(site)
    limit = query.number("limit", IN_PAGE, MOST)
    proofs = site.links.proofs
    is_proved = where is None or (proofs is not None and proofs.hold(query.text(PROOF), where))
    rows = partial(site.queries.rows, stop=site.stop) if site.queries and where else None
    traces = listed_traces(site.store, where, _day(since), limit, rows) if is_proved else []
    body = render(
        "traces.html",
        site,
        traces=traces,
        where=where,
        is_proved=is_proved,
        proof=PROOF,
        since=since,
        limit=limit,
        most=MOST,
        command=_command(where, since),
    )
    return Page(title="Traces", section="production", body=body)


def trace_page(site: Site, query: Query) -> Page:
    """One trace: its observations with inputs, outputs, tokens, cost, scores and labels."""
    trace = trace_view(observations_of_trace(site.store, query.wanted("id")))
    by_subject: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts_of_trace(site.store, trace.id):
        by_subject[verdict.subject_id].append(verdict)
    nodes = [
        _Node(view=view, depth=min(depth, DEEPEST), verdicts=by_subject[f"{trace.id}/{view.id}"])
        for depth, view in in_depth(trace.observations)
    ]
    body = render(
        "trace.html",
        site,
        trace=trace,
        verdicts=by_subject[trace.id],
        nodes=nodes,
        command=_command(f"trace_id = '{trace.id}'", None),
        json=_json,
        said=_said,
        tokens=_tokens,
    )
    return Page(title=f"Trace: {trace.name}", section="production", body=body)


def _command(where: str | None, since: str | None) -> str:
    """Return the command that makes a dataset of such traces."""
    given = [(name, value) for name, value in (("--where", where), ("--since", since)) if value]
    return " ".join(
        ["evalflows dataset from-traces --name NAME", *(f"{name} {_quoted(value)}" for name, value in given)]
    )


def _quoted(text: str) -> str:
    """Return a text as an argument in a shell: in double quotes if that is enough, since SQL has single ones."""
    return quote(text) if any(character in text for character in '"$`\\!') else f'"{text}"'


def _json(value: Any) -> str | None:
    return None if value is None else json_text(value, default=str)


def _said(verdict: Verdict) -> str:
    if verdict.value is None and verdict.label is None:
        return verdict.problem or "no value"
    return label_text(verdict.value, verdict.label, None)


def _tokens(view: TraceView | ObservationView) -> str | None:
    if view.tokens_in is None and view.tokens_out is None:
        return None
    return "+".join("?" if count is None else str(count) for count in (view.tokens_in, view.tokens_out))


def _recent(site: Site) -> str | None:
    """Return the last day that has traces: reading all to show the newest would take seconds and gigabytes."""
    return last_owner(site.store, "observations")


def _day(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"since: got {text!r}, wanted a day such as 2026-11-01") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
