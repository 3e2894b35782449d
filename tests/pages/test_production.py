"""Production: what trace evaluations judged, incidents and their acknowledgement, and traces."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from alarmed import SPEC, alarmed_production
from made_windows import IDENTITY, NAME, Production, write_traces
from production import BEGAN, produce, score, trace, trace_id
from store_rows import make_row

from evalflows.dashboard.app import take_acknowledgement
from evalflows.dashboard.datasets import take_incident
from evalflows.dashboard.links import Links, Proofs
from evalflows.dashboard.production import evaluation_page, incident_page, production_page, trace_page, traces_page
from evalflows.dashboard.rendering import Page, Query, Site
from evalflows.specs.errors import InputError
from evalflows.store.queries.incidents import episodes, incidents, worst_items, write_event
from evalflows.store.records import derived_id
from evalflows.store.store import Store
from evalflows.store.trace_records import AlertRow, evaluation_id

Make = Callable[..., Any]


PROOFS = Proofs()


def shown(page: Callable[[Site, Query], Page], **query: str) -> str:
    return str(page(Site(store=Store(), links=Links(proofs=PROOFS)), Query.of(query.items())).body)


def listed(where: str, **query: str) -> str:
    return shown(traces_page, where=where, proof=PROOFS.of(where), **query)


def fill() -> Production:
    """Three days, the last of which alarmed, for tests that only read."""
    return alarmed_production(Store(), make_row)


@pytest.fixture
def alarmed(store: Store, make: Make) -> Production:
    """The same, for tests that write."""
    return alarmed_production(store, make)


def test_without_production_the_pages_say_so(store: Store) -> None:
    html = shown(production_page)
    assert "No incidents" in html
    assert "evalflows evaluate-traces" in html
    assert "No traces yet" in shown(traces_page)
    with pytest.raises(InputError, match=r"trace evaluation 'x': not in .* wanted one of: none yet"):
        shown(evaluation_page, name="x")
    with pytest.raises(InputError, match="incident 'x'"):
        shown(incident_page, id="x")


def test_an_evaluation_shows_each_look_and_marks_the_alarm(filled: Production) -> None:
    html = shown(evaluation_page, name=NAME)
    (incident,) = incidents(filled.store)
    assert len(re.findall(r'class="point', html)) == 3
    assert len(re.findall(r'class="point worse"', html)) == 1
    assert re.search(
        f'<a href="/production/incidents/{incident.incident_id}" aria-label="[^"]*"><g class="point worse">', html
    )
    assert "0.599 [0.527, 0.668], n 197, 3 missing; violated" in html


def test_windows_have_the_figures_of_each_metric(store: Store, alarmed: Production, make: Make) -> None:
    spec = SPEC.model_dump_json()
    evaluators = '[{"name": "accuracy", "version": "v1"}]'
    of = {"batch_id": "batch-2", "evaluation_id": IDENTITY, "name": NAME, "kind": "schedule", "scope": "traces"}
    row = make("watermarks", **of, state="completed", spec=spec, evaluators=evaluators, until=alarmed.at)
    store.append("watermarks", IDENTITY, "later", [row])
    html = shown(evaluation_page, name=NAME, part="windows")
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", html)]
    first = cells.index("2026-10-03")
    assert cells[first + 1].startswith("0.599")
    assert cells[first + 2 : first + 5] == ["197", "3", "1.5%"]
    plans = {"metadata.plan": "pro", "langfuse.trace.metadata.region": "eu", "metadata": {"team": "a"}}
    produce(store, replace(trace("last", "in", "out", began=alarmed.at), attributes=json.dumps(plans)))
    html = shown(evaluation_page, name=NAME, part="windows", slice="metadata.kind")
    offered = re.findall(r"<option(?: selected)?>(metadata[^<]*)</option>", html)
    assert offered == ["metadata.plan", "metadata.region", "metadata.team", "metadata.kind"]
    with pytest.raises(InputError, match="slice: got 'plan', wanted one of tag"):
        shown(evaluation_page, name=NAME, part="windows", slice="plan")


def test_an_acknowledgement_is_an_event_of_the_incident(store: Store, alarmed: Production) -> None:
    (incident,) = incidents(store)
    query = Query.of([], {"id": incident.incident_id})
    assert "acknowledgements" in shown(incident_page, id=incident.incident_id)
    with pytest.raises(InputError, match="by: got none"):
        take_acknowledgement(store, query, {"note": "x"})
    assert take_acknowledgement(store, query, {"by": "ada", "note": "<b>rolled back"})["event"] == "acknowledged"
    html = shown(incident_page, id=incident.incident_id)
    assert "acknowledged by ada: &lt;b&gt;rolled back" in html
    assert take_acknowledgement(store, query, {"by": "ada", "close": "yes"})["event"] == "closed"
    html = shown(incident_page, id=incident.incident_id)
    assert "acknowledgements" not in html, "what is over cannot be acknowledged"
    with pytest.raises(InputError, match="is closed, wanted"):
        take_acknowledgement(store, query, {"by": "ada"})
    assert "No incident is open" in shown(production_page)
    assert incident.incident_id in shown(production_page, incidents="all")


def test_traces_are_listed_by_a_condition_and_lead_to_a_dataset(store: Store) -> None:
    produce(store, trace("a", "in a", "out a", version="1.4"), trace("b", "in b", "out b", version="1.5", minute=1))
    html = shown(traces_page)
    assert [f"/production/traces/{trace_id(one)}" in html for one in "ab"] == [True, True]
    only = listed("version = '1.4'")
    assert [f"/production/traces/{trace_id(one)}" in only for one in "ab"] == [True, False]
    assert "from-traces --name NAME --where &#34;version = &#39;1.4&#39;&#34;" in only
    assert ">in a</div>" in html and ">out b</div>" in html, "texts, not ids"
    assert [f"/production/traces/{trace_id(one)}" in shown(traces_page, q="OUT B") for one in "ab"] == [False, True]
    assert [f"/production/traces/{trace_id(one)}" in shown(traces_page, q="t_b%") for one in "ab"] == [False, False]
    with pytest.raises(InputError, match="filter: "):
        listed("nothing = ")
    with pytest.raises(InputError, match="since: got 'x'"):
        shown(traces_page, since="x")


def test_a_click_writes_the_condition_and_a_session_is_a_conversation(store: Store) -> None:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "And <b>then</b>?"}]
    in_one: dict[str, Any] = {"version": "1.4", "session": "it's one", "user.id": "ann"}
    produce(
        store,
        trace("a", asked, "out a", **in_one, **{"tag.tags": ["x", "y"]}),
        trace("b", "in b", "out b", **in_one, **{"tag.tags": ["x"]}, minute=1),
        trace("c", "in c", "out c", version="1.5", minute=2),
        scores=[score("a", "accuracy", 0.25), score("b", "accuracy", 1.0), score("c", "accuracy", None)],
    )
    html = shown(traces_page)
    assert "And &lt;b&gt;then&lt;/b&gt;?</div>" in html and "Be brief" not in html, "the last question"
    addresses = re.findall(r'href="[^"]*traces\?([^"]*where[^"]*)"', html)
    links = {given["where"]: given for given in (dict(parse_qsl(unescape(address))) for address in addresses)}
    low = "trace_id in (select trace_id from trace_scores where metric = 'accuracy' and value <= 0.25)"
    wanted = {"version = '1.5'": "c", "user_id = 'ann'": "ab", "list_contains(tags, 'y')": "a", low: "a"}
    for where, those in wanted.items():
        found = shown(traces_page, **links[where])
        assert "".join(one for one in "abc" if f"/production/traces/{trace_id(one)}" in found) == those, where
    combined = listed("version = '1.4' or version = '1.5'")
    assert "where=%28version+%3D+%271.4%27+or+version+%3D+%271.5%27%29+and+user_id" in combined
    conversation = shown(traces_page, session="it's one")
    assert conversation.index("then") < conversation.index("out a") < conversation.index("in b")
    assert "in c" not in conversation


def test_a_condition_that_no_page_of_ours_sent_is_shown_and_not_run(store: Store) -> None:
    produce(store, trace("a", "in a", "out a", version="1.4"))
    where = "version = '1.4' and error('<run>')"
    for proof in ({}, {"proof": ""}, {"proof": "\xe9"}, {"proof": PROOFS.of("true")}, {"proof": Proofs().of(where)}):
        html = shown(traces_page, where=where, **proof)
        assert "came with the address and has not been run" in html
        assert "error(&#39;&lt;run&gt;&#39;)</pre>" in html
        assert "/production/traces/" not in html
    with pytest.raises(InputError, match="<run>"):
        listed(where)
    unable = Site(store=store, links=Links())
    assert "has not been run" in str(traces_page(unable, Query.of([("where", "true")])).body)


def test_the_link_of_an_incident_proves_its_condition_and_finds_the_traces_of_its_day(alarmed: Production) -> None:
    (incident,) = incidents(alarmed.store)
    of_window, later = incident.window_start, incident.window_start + timedelta(days=30)
    produce(alarmed.store, trace("a", "in", "out", began=of_window), trace("b", "in", "out", began=later))
    (address,) = re.findall(r'href="(/production/traces\?[^"]*)"', shown(incident_page, id=incident.incident_id))
    given = dict(parse_qsl(urlsplit(unescape(address)).query))
    assert given["where"].startswith("started_at >= ")
    html = shown(traces_page, **given)
    assert [f"/production/traces/{trace_id(one)}" in html for one in "ab"] == [True, False]
    assert "has not been run" in shown(traces_page, **given | {"where": given["where"] + " or true"})


def test_an_incident_says_what_changed_and_shows_the_worst_items(store: Store, make: Make) -> None:
    made = alarmed_production(store, make, "1.4", "1.5")
    (incident,) = incidents(store)
    html = shown(incident_page, id=incident.incident_id)
    assert html.count('class="point') == 3 and len(re.findall(r'href="/production/traces/\w+"', html)) == 10
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", html)]
    first = cells.index("version 1.5")
    assert cells[first : first + 5] == ["version 1.5", "0% → 100%", "- → 0.599", "0 → 197", "100%"]
    assert cells[first + 5 : first + 10] == ["version 1.4", "100% → 0%", "0.805 → -", "400 → 0", "0%"]
    assert "version 1.5 has 100% of the change" in html
    assert len(re.findall(r'class="release".*?<title>1.5</title>', html)) == 1, "1.4 began before the chart"
    assert "gate SPEC --baseline" in html and "[version=1.4]" in html
    at = incident.window_start
    scored = {"trace_id": derived_id("trace", at.isoformat()), "resource": json.dumps({"service.version": "o'1"})}
    write_traces(store, make, [at], **scored)
    made.at = at
    made.windows(0.0)
    (one,) = worst_items(store, replace(incident, slice="version=o'1"), 10)
    assert (one.trace_id, one.value) == (scored["trace_id"], 0.0), "only of the slice"


def test_the_alarms_of_one_event_are_one_incident(store: Store, alarmed: Production) -> None:
    (first,) = incidents(store)
    day = timedelta(days=1)
    later = {"rule": "fall accuracy", "window_start": first.window_start + day, "window_end": first.window_end + day}
    names = {one.name for one in fields(AlertRow)} & {one.name for one in fields(type(first))}
    of_first = {name: getattr(first, name) for name in names}
    for name, other in (("incident-2", later), ("incident-3", {"metric": "other"})):
        given = of_first | {"incident_id": name, "event_id": name, "event": "alarm", **other}
        write_event(store, AlertRow(**given))
    html = shown(production_page)
    rows = re.findall(r"<tr tabindex.*?</tr>", html.partition("<h2>Watched metrics")[0], re.DOTALL)
    assert len(rows) == 2 and sum("threshold accuracy, fall accuracy" in row for row in rows) == 1
    take_acknowledgement(store, Query.of([], {"id": "incident-2"}), {"by": "ada"})
    states = {one.incident_id: one.state for one in incidents(store)}
    assert states == {first.incident_id: "acknowledged", "incident-2": "acknowledged", "incident-3": "open"}
    over = replace(first, state="recovered", ended_window_end=first.window_end)
    again = replace(
        first, incident_id="again", window_start=first.window_end + day, window_end=first.window_end + 2 * day
    )
    assert len(episodes([over, again])) == 2, "it began after the first was over"
    assert len(episodes([replace(over, ended_window_end=again.window_start), again])) == 1


def test_a_dataset_is_made_of_the_worst_traces(store: Store) -> None:
    produce(store, *(trace(one, f"in {one}", f"out {one}") for one in "ab"), scores=[score("a", "helpful", 0.25)])
    alert = make_row("alerts", incident_id="incident-1", event="alarm", metric="helpful", slice="all", name="watch")
    window = {"window_start": BEGAN, "window_end": BEGAN + timedelta(days=1), "evaluation_id": evaluation_id("watch")}
    write_event(store, replace(alert, **window))
    sent = {"dataset": "worst", "by": "ada"}
    told = take_incident(store, Query.of([], {"id": "incident-1"}), sent)
    assert told["said"] == "worst: added; 1 examples"


def test_a_trace_shows_what_was_said_and_escapes_it(store: Store) -> None:
    produce(
        store,
        trace("a", "<script>alert(1)</script>", {"answer": "\x1b[31mred"}),
        scores=[score("a", "helpful", 0.25, comment="too <i>short</i>"), score("a", "broken", None, error="no answer")],
    )
    html = shown(trace_page, id=trace_id("a"))
    assert "<script" not in html and "&lt;script&gt;alert(1)" in html
    assert "\x1b" not in html and r"\x1b[31mred" in html
    assert re.search(r"<b>helpful</b> 0\.250.*too &lt;i&gt;short", html, re.DOTALL)
    assert re.search(r"<b>broken</b> no answer", html)
    assert f"{BEGAN:%Y-%m-%d %H:%M:%S} UTC" in html
