"""Watch rules at work: each kind alarms once, recovers or is closed, and looks once at each window."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from made_windows import IDENTITY, NAME, START, Production, write_traces

from evalflows.analysis.monitoring import CLOSED_AFTER, Watched, acknowledge, watch
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.incidents import find_incident, incidents, write_event, write_looks
from evalflows.store.records import to_json
from evalflows.store.store import Store

Make = Callable[..., Any]
STEADY = (0.8, 0.81, 0.79, 0.8, 0.8, 0.81, 0.79, 0.8)


def spec(*rules: Any, **fields: Any) -> TraceEvaluationSpec:
    return TraceEvaluationSpec(name=NAME, evaluators=["exact_match"], watch=list(rules), **fields)


def watched(store: Store, given: TraceEvaluationSpec, *versions: str) -> Watched:
    """Watch, and write what the task writes."""
    seen = watch(store, IDENTITY, given, versions or ("v1",))
    for event in seen.events:
        write_event(store, event)
    write_looks(store, seen.looks)
    return seen


@pytest.fixture
def production(store: Store, make: Make) -> Production:
    return Production(store, make)


def said(seen: Watched) -> list[tuple[str, str]]:
    return [(event.event, event.text) for event in seen.events]


@pytest.mark.slow
def test_a_fall_alarms_once_and_recovers(store: Store, production: Production) -> None:
    rules = spec({"threshold": "accuracy", "minimum": 0.75}, {"fall": "accuracy", "margin": 0.02})
    production.windows(*STEADY[:4])
    production.judged()
    assert said(watched(store, rules)) == []
    production.windows(0.6, 0.6)
    production.judged()
    seen = watched(store, rules)
    of_fall = "accuracy 0.600 [0.502, 0.693] on 2026-10-05, worse than 0.800 of the window before, margin 0.020; n 200"
    assert sorted(said(seen)) == [  # a fall may alarm falsely less often, so its level is higher
        ("alarm", of_fall),
        ("alarm", "accuracy 0.600 [0.529, 0.668] on 2026-10-05, below 0.750; n 200"),
    ]
    assert seen.sent == seen.events
    production.windows(0.6, 0.8, 0.8)
    production.judged()
    recovered = [text for event, text in said(watched(store, rules)) if event == "recovered"]
    assert [text.partition(" [")[0] for text in recovered] == ["accuracy recovered: 0.800"] * 2
    assert said(watched(store, rules)) == []
    assert sorted((one.state, one.reference) for one in incidents(store)) == [("recovered", 0.75), ("recovered", 0.8)]


@pytest.mark.slow
def test_days_that_vary_need_a_larger_fall_and_the_alarm_says_so(store: Store, production: Production) -> None:
    production.windows(*(0.7, 0.85) * 6, 0.85)
    production.windows(0.7, 0.3)
    production.judged()
    *earlier, event = watched(store, spec({"fall": "accuracy"})).events
    late = [one for one in earlier if one.event == "alarm" and (one.window_start or START) > START + timedelta(days=6)]
    assert (event.window_start, late) == (START + timedelta(days=14), []), "falls of 15 points are usual there"
    assert "of the window before (days vary by 0.0" in event.text and " beyond chance)" in event.text


@pytest.mark.slow
def test_the_change_detector_says_since_when(store: Store, production: Production) -> None:
    production.windows(*STEADY, 0.8, 0.66, 0.67, 0.66)
    production.judged()
    (event,) = watched(store, spec("accuracy")).events
    assert (event.event, event.kind, event.rule) == ("alarm", "change", "change accuracy")
    assert event.since == START + timedelta(days=9)
    assert event.evidence is not None and event.evidence >= 150
    assert event.value == pytest.approx(0.665, abs=0.01) and event.reference == pytest.approx(0.8, abs=0.01)
    assert "since 2026-10-10, worse than 0.800 before" in event.text
    production.windows(0.8, 0.8, 0.81)
    production.judged()
    assert [event.event for event in watched(store, spec("accuracy")).events] == ["recovered"]
    production.windows(0.6, 0.6)
    production.judged()
    (again,) = watched(store, spec("accuracy")).events
    assert again.event == "alarm" and again.reference == pytest.approx(0.8, abs=0.01)  # without the first incident
    assert again.incident_id != event.incident_id


@pytest.mark.slow
def test_an_alarm_says_that_people_reject_its_judge(store: Store, production: Production, make: Make) -> None:
    of = {"subject_kind": "judge", "subject_id": "accuracy", "name": "people", "message": "alpha 0.1 [-0.2, 0.4]"}
    batch, observed = "people-accuracy", to_json({"evaluator_version": "v1", "evaluator": "exact_match"})
    store.publish("checks", batch, [make("checks", batch_id=batch, passed=False, observed=observed, **of)])
    production.windows(*STEADY[:4], 0.6)
    production.judged()
    (event,) = watched(store, spec({"fall": "accuracy"}, {"failure_share": "accuracy", "maximum": 0.0})).events
    rejected = "its judge agrees with people not significantly better than chance (alpha 0.1 [-0.2, 0.4])"
    assert event.event == "alarm" and event.text.endswith(f"; n 200; {rejected}")


@pytest.mark.slow
def test_a_rise_is_no_fall_unless_lower_is_better(store: Store, production: Production) -> None:
    production.windows(*STEADY, 0.95, 0.95, 0.95)
    production.judged()
    rules = ({"fall": "accuracy"}, "accuracy")
    assert watched(store, spec(*rules)).events == []
    lower = spec(
        *({"fall": "accuracy", "name": "rise"}, {"change": "accuracy", "name": "drift"}),
        metrics={"accuracy": {"higher_is_better": False}},
    )
    assert {event.rule for event in watched(store, lower).events} == {"rise", "drift"}


@pytest.mark.slow
def test_failed_judgements_are_a_share_of_all(store: Store, production: Production) -> None:
    rule = {"failure_share": "accuracy", "maximum": 0.05}
    production.windows(0.8, failed=4)
    production.windows(0.8, 0.8, failed=40)
    production.windows(0.8, failed=2)
    production.judged()
    seen = watched(store, spec(rule))
    text = "failed judgements of accuracy 20.0% [14.7%, 26.2%] on 2026-10-02, above 5%; n 200"
    assert [event for event, _ in said(seen)] == ["alarm", "recovered"] and said(seen)[0][1] == text
    assert seen.sent == [], "an incident that is over when it is seen first is not sent"


@pytest.mark.slow
def test_a_slice_is_watched_by_itself(store: Store, make: Make) -> None:
    old, new = Production(store, make, n=60), Production(store, make, n=60)
    for day in range(8):
        for version, share in (("1.3", 0.9), ("1.4", 0.9 if day < 6 else 0.5)):
            side = old if version == "1.3" else new
            at = [side.at + side.length * place / side.n for place in range(side.n)]
            write_traces(store, make, at, resource=f'{{"service.version":"{version}"}}')
            side.windows(share, resource=f'{{"service.version":"{version}"}}')
    new.judged()
    seen = watched(store, spec({"threshold": "accuracy", "minimum": 0.8, "slices": ["version"]}))
    assert [(event.slice, event.event) for event in seen.events] == [("version=1.4", "alarm")]
    assert {look.slice for look in seen.looks} == {"version=1.3", "version=1.4"}
    assert {look.n for look in seen.looks} == {60}
    assert {round(look.confidence_level or 0, 4) for look in seen.looks} == {0.975}  # two slices share the false alarms


def test_a_window_is_looked_at_once_and_only_when_it_has_closed(store: Store, production: Production) -> None:
    rule = {"threshold": "accuracy", "minimum": 0.75}
    production.windows(0.8)
    production.at -= timedelta(hours=1, minutes=30)  # the batch judged until half an hour after the day's end
    production.judged()
    assert watched(store, spec(rule)).looks == []
    production.at += timedelta(hours=1, minutes=30)
    production.judged()
    (look,) = watched(store, spec(rule)).looks
    assert (look.n, look.value, look.outcome) == (200, 0.8, "holds")
    production.at = START
    Production(store, production.make, n=150, version="v1").windows(0.0, late=True)
    production.at = START + timedelta(days=1)
    production.judged()
    assert watched(store, spec(rule)).looks == [], "what is late changes no look"


def test_a_window_with_too_few_traces_is_not_evaluated(store: Store, make: Make) -> None:
    few = Production(store, make, n=20)
    few.windows(0.1, 0.1)
    few.judged()
    seen = watched(store, spec({"threshold": "accuracy", "minimum": 0.75}, "accuracy"))
    assert {(look.outcome, look.reason_code) for look in seen.looks} == {("not_evaluated", "below_min_examples")}
    assert seen.events == [] and len(seen.looks) == 4


@pytest.mark.slow
def test_an_incident_is_closed_without_traces_and_when_its_rule_or_its_evaluator_is_gone(
    store: Store, production: Production
) -> None:
    rule = spec({"threshold": "accuracy", "minimum": 0.75})
    ends = (
        (lambda: production.nothing(CLOSED_AFTER.days), rule, "v1", "no_data"),
        (lambda: None, rule, "v2", "evaluator_changed"),
        (lambda: production.windows(0.6), spec("accuracy"), "v1", "rule_removed"),
    )
    for happens, then, version, reason in ends:
        production.windows(0.6)
        production.judged()
        assert [event.event for event in watched(store, rule).events] == ["alarm"]
        happens()
        production.judged()
        (event,) = watched(store, then, version).events
        assert (event.event, event.reason_code) == ("closed", reason)
        assert watched(store, then, version).events == []


@pytest.mark.slow
def test_an_acknowledged_incident_silences_its_metric(store: Store, production: Production) -> None:
    low, fall = {"threshold": "accuracy", "minimum": 0.75}, {"fall": "accuracy"}
    production.windows(*STEADY, 0.65)
    production.judged()
    watched(store, spec(low))
    (incident,) = incidents(store)
    acknowledge(store, incident, by="ada", note="looking")
    found = find_incident(store, incident.incident_id[:20])
    assert (found.state, found.acknowledged_by, found.note) == ("acknowledged", "ada", "looking")
    seen = watched(store, spec(low, fall))
    assert [event.rule for event in seen.events] == ["fall accuracy"] and seen.sent == []
    production.windows(0.8)
    production.judged()
    seen = watched(store, spec(low, fall))
    assert [event.event for event in seen.sent] == ["recovered", "recovered"]


@pytest.mark.slow
def test_a_person_who_closes_a_change_accepts_its_level(store: Store, production: Production) -> None:
    production.windows(*STEADY, 0.6, 0.6)
    production.judged()
    assert [event.event for event in watched(store, spec("accuracy")).events] == ["alarm"]
    (incident,) = incidents(store)
    acknowledge(store, incident, by="ada", close=True)
    assert incidents(store)[0].state == "closed"
    production.windows(*(0.6, 0.61, 0.59, 0.6, 0.6, 0.61))
    production.judged()
    assert watched(store, spec("accuracy")).events == []
    production.windows(0.4)
    production.judged()
    (event,) = watched(store, spec("accuracy")).events
    assert event.reference == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("version", ["v1", "other"])
def test_a_fall_against_an_experiment_needs_the_same_evaluator(
    store: Store, production: Production, make: Make, version: str
) -> None:
    store.append("experiments", "exp-1", "p", [make("experiments", experiment_id="exp-1", name="release")])
    of = {"estimate_id": "e", "experiment_id": "exp-1", "metric": "accuracy", "evaluator_version": version}
    given = {"mean": 0.85, "ci_low": 0.82, "ci_high": 0.88, "confidence_level": 0.95, "n_examples": 400}
    store.append("estimates", "exp-1", "p", [make("estimates", **of | given)])
    production.windows(0.7)
    production.judged()
    seen = watched(store, spec({"fall": "accuracy", "against": "release", "margin": 0.05}))
    if version == "v1":
        assert [event.reference for event in seen.events] == [0.85]
        assert "worse than 0.850 of experiment release, margin 0.050" in seen.events[0].text
    else:
        assert [look.reason_code for look in seen.looks] == ["not_comparable"]


def test_hourly_windows_recover_after_six_good_ones(store: Store, make: Make) -> None:
    hourly = Production(store, make, n=100, hours=1)
    rule = {"threshold": "accuracy", "minimum": 0.75, "window": "hour"}
    hourly.windows(0.8, 0.4, *[0.8] * 5, 0.7, *[0.8] * 6)
    hourly.judged()
    seen = watched(store, spec(rule))
    assert [(event.event, event.window_start) for event in seen.events] == [
        ("alarm", START + timedelta(hours=1)),
        ("recovered", START + timedelta(hours=13)),
    ]
    assert "at 2026-10-01 01:00-02:00 UTC" in seen.events[0].text
    assert round(seen.looks[0].confidence_level or 0, 5) == 0.99792
