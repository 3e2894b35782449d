"""Watch rules at work: look once at each window that has closed, and begin and end incidents."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta

from evalflows.analysis.monitoring.estimates import LENGTH
from evalflows.analysis.monitoring.incidents import closed, follow
from evalflows.analysis.monitoring.stream import Stream
from evalflows.specs.errors import InputError
from evalflows.specs.trace_evaluation import TraceEvaluationSpec
from evalflows.specs.watching import ALL, PREVIOUS, WatchSpec, WindowSize
from evalflows.store.parquet import Store
from evalflows.store.queries.incidents import Incident, experiment_mean, incidents, looks_since, watched_until
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.trace_filter import condition
from evalflows.store.queries.trace_windows import (
    MEASURED_VERSION,
    Window,
    WindowsWanted,
    first_day,
    windows_of_day,
)
from evalflows.store.reasons import ReasonCode
from evalflows.store.records import EstimateRow
from evalflows.store.trace_records import AlertRow, WatchedWindowRow

LOOKED_BACK = timedelta(days=28)
"""How far a new rule looks back, and how many days the change detector compares with."""
REMEMBERED = 2 * LOOKED_BACK
"""Looks of so long are read again: the change detector follows changes as long as it compares with."""
CLOSED_AFTER = timedelta(days=7)
"""An incident is closed if no window of its slice had enough traces for so long."""
MOST_SLICES = 50
"""Slices that one rule watches: those with the most traces."""

StreamKey = tuple[str, str]
"""A slice and an evaluator version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the rules of an evaluation saw: their looks, all events, and those to send."""

    looks: Sequence[WatchedWindowRow] = ()
    events: Sequence[AlertRow] = ()
    sent: Sequence[AlertRow] = ()


@dataclass(slots=True, kw_only=True)
class Watching:
    """The rules of one trace evaluation at work, up to a moment."""

    store: Store
    evaluation_id: str
    name: str
    spec: TraceEvaluationSpec
    versions: Sequence[str]
    until: datetime  # all that was recorded until then is judged
    looks: list[WatchedWindowRow] = field(default_factory=list)
    events: list[AlertRow] = field(default_factory=list)

    def watched(self) -> Watched:
        known = incidents(self.store, self.name)
        earlier = looks_since(self.store, self.evaluation_id, self.until - REMEMBERED)
        for size in ("hour", "day"):
            rules = [rule for rule in self.spec.watch if rule.window == size]
            if rules:
                windows = self._new_windows(rules, size, earlier)
                for rule in rules:
                    of_rule = [incident for incident in known if incident.rule == rule.title]
                    looks = [look for look in earlier if look.rule == rule.title]
                    self._watch(rule, windows[rule.title], looks, of_rule)
        self._close_removed(known)
        return Watched(looks=self.looks, events=self.events, sent=_sent(self.events, known))

    def _new_windows(
        self, rules: Sequence[WatchSpec], size: WindowSize, earlier: Sequence[WatchedWindowRow]
    ) -> Mapping[str, list[Window]]:
        """Return the closed windows that each rule has not looked at yet, read a day at a time."""
        begin = {rule.title: self._begin(rule, earlier) for rule in rules}
        found: defaultdict[str, list[Window]] = defaultdict(list)
        wanted = WindowsWanted(
            evaluation_id=self.evaluation_id,
            scope=self.spec.scope,
            versions=self.versions,
            condition=condition(self.spec.filter, self.spec.scope),
            size=size,
            dimensions={part.partition("=")[0] for rule in rules for part in rule.slices} - {ALL},
        )
        for day in _days(min(begin.values()), self.until):
            for window in windows_of_day(self.store, wanted, day):
                for rule in rules:
                    is_closed = window.start + LENGTH[size] + timedelta(seconds=rule.closes_after_s) <= self.until
                    if is_closed and window.start >= begin[rule.title] and is_watched(rule, window):
                        found[rule.title].append(window)
        return found

    def _begin(self, rule: WatchSpec, earlier: Sequence[WatchedWindowRow]) -> datetime:
        """Return the start of the first window that a rule has not passed."""
        passed = max((look.window_end for look in earlier if look.rule == rule.title), default=None)
        if passed is not None:
            return max(passed, self.until - LOOKED_BACK)
        oldest = (self.until - LOOKED_BACK).replace(hour=0, minute=0, second=0, microsecond=0)
        first = first_day(self.store, self.evaluation_id)
        return oldest if first is None else max(oldest, _midnight(first))

    def _watch(
        self,
        rule: WatchSpec,
        windows: Sequence[Window],
        looks: Sequence[WatchedWindowRow],
        known: Sequence[Incident],
    ) -> None:
        streams = self._streams(rule, windows, looks, known)
        enough = Counter(
            window.start
            for window in windows
            if window.clusters >= rule.min_n and (window.slice, window.evaluator_version) in streams
        )
        for stream in streams.values():
            for window in stream.upcoming:
                self.looks.append(stream.look(window, enough[window.start]))
                if (event := follow(self.name, stream, enough[window.start])) is not None:
                    self.events.append(event)
            self._close_silent(stream)

    def _streams(
        self,
        rule: WatchSpec,
        windows: Sequence[Window],
        looks: Sequence[WatchedWindowRow],
        known: Sequence[Incident],
    ) -> Mapping[StreamKey, Stream]:
        """Return the streams of a rule: the slices with the most traces, and those that are in an incident."""
        upcoming: defaultdict[StreamKey, list[Window]] = defaultdict(list)
        for window in windows:
            upcoming[window.slice, window.evaluator_version].append(window)
        largest = sorted(upcoming, key=lambda key: -sum(window.n for window in upcoming[key]))[:MOST_SLICES]
        in_incident = [
            (one.slice, one.evaluator_version or "") for one in known if not one.is_over and self._is_current(one)
        ]
        reference = self._reference(rule) if largest else {}
        return {
            (part, version): Stream(
                evaluation_id=self.evaluation_id,
                rule=rule,
                metric=self.spec.direction(rule.metric),
                slice=part,
                evaluator_version=version,
                looks=[look for look in looks if (look.slice, look.evaluator_version) == (part, version)],
                ended=[one for one in known if one.is_over and (one.slice, one.evaluator_version) == (part, version)],
                incident=next(
                    (one for one in known if not one.is_over and (one.slice, one.evaluator_version) == (part, version)),
                    None,
                ),
                reference=reference.get(version) or next(iter(reference.values()), None),
                upcoming=upcoming[part, version],
            )
            for part, version in dict.fromkeys([*largest, *in_incident])
        }

    def _reference(self, rule: WatchSpec) -> dict[str, EstimateRow]:
        """Return the means of the experiment that a fall is measured against, by evaluator version; none if unknown."""
        if rule.against in (None, PREVIOUS):
            return {}
        try:
            (experiment,) = find_experiments(self.store, str(rule.against), just_one=True)
        except InputError:
            return {}  # each look says so: no_reference
        return {row.evaluator_version: row for row in experiment_mean(self.store, experiment, rule.metric)}

    def _close_silent(self, stream: Stream) -> None:
        """Close an incident of a slice that has had too few traces for long: it can neither last nor recover."""
        incident = stream.incident
        if incident is None:
            return
        seen = [look.window_end for look in stream.looks if look.outcome != "not_evaluated"]
        last = max([incident.window_end, *seen])
        if self.until - last > CLOSED_AFTER:
            why = f"no window with {stream.rule.min_n} traces in {CLOSED_AFTER.days} days"
            self.events.append(closed(incident, "no_data", why, until=last))
            stream.incident = None

    def _is_current(self, incident: Incident) -> bool:
        return incident.evaluator_version in self.versions or incident.evaluator_version == MEASURED_VERSION

    def _close_removed(self, known: Sequence[Incident]) -> None:
        """Close the incidents that no rule, or no evaluator, can end any more."""
        titles = {rule.title for rule in self.spec.watch}
        for incident in known:
            reason: tuple[ReasonCode, str] | None = None
            if incident.rule not in titles:
                reason = "rule_removed", "its rule is no longer in the spec"
            elif not self._is_current(incident):
                reason = "evaluator_changed", "its evaluator has changed"
            if reason and not incident.is_over:
                self.events.append(closed(incident, *reason, until=incident.window_end))


def is_watched(rule: WatchSpec, window: Window) -> bool:
    """Whether a rule looks at a window: at its values, or at what failed in it."""
    sums = "failure" if rule.kind == "failure_share" else "value"
    return window.of == sums and window.metric == rule.metric and rule.watches(window.slice)


def watch(
    store: Store, evaluation_id: str, spec: TraceEvaluationSpec, versions: Sequence[str], flow_run_id: str | None = None
) -> Watched:
    """Look at the windows of a trace evaluation that have closed since the last time, and write nothing.

    `versions` are those of its evaluators and composites. A window has closed when all that was recorded until its end,
    and some time after it, is judged; see `WatchSpec.late_s`. Raise InputError for a filter that DuckDB rejects.
    """
    until = watched_until(store, evaluation_id)
    if until is None:
        return Watched()
    watching = Watching(
        store=store, evaluation_id=evaluation_id, name=spec.name, spec=spec, versions=versions, until=until
    )
    watched = watching.watched()
    return Watched(
        looks=[replace(look, flow_run_id=flow_run_id) for look in watched.looks],
        events=[replace(event, flow_run_id=flow_run_id) for event in watched.events],
        sent=[replace(event, flow_run_id=flow_run_id) for event in watched.sent],
    )


def _sent(events: Sequence[AlertRow], known: Sequence[Incident]) -> list[AlertRow]:
    """Return the events to send: not of incidents that began and ended in windows looked at together, and no alarm of a
    metric and slice of which a person has acknowledged an incident that is not over."""
    before = {incident.incident_id for incident in known}
    ended = {event.incident_id for event in events if event.event != "alarm"}
    silenced = {(one.metric, one.slice) for one in known if one.state == "acknowledged"}
    return [
        event
        for event in events
        if event.incident_id in before
        or (event.incident_id not in ended and (event.metric, event.slice) not in silenced)
    ]


def _days(since: datetime, until: datetime) -> Iterator[date]:
    day = since.date()
    while day <= until.date():
        yield day
        day += timedelta(days=1)


def _midnight(day: date) -> datetime:
    return datetime.fromisoformat(f"{day.isoformat()}T00:00:00+00:00")
