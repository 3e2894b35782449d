"""What could still be wrong with a decision, and in which slices it got worse, in words, from what is stored."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from evalflows.analysis.changes import DepartingSlice, SliceSearch
from evalflows.analysis.figures import assumed_direction, figure
from evalflows.analysis.judge_exclusions import people_checks, specs_with_steps, stepped_in
from evalflows.reports.decisions import Decision, rule_texts
from evalflows.reports.slices import examples_command, where_lines
from evalflows.specs.metric_names import LATENCY, MIN_EXAMPLES, base_metric, metric_of
from evalflows.store.final_examples import copies_of, copies_text
from evalflows.store.queries.invalid_trials import invalid_trials
from evalflows.store.queries.looks import final_ids, look_of, looks_until, unkept_looks
from evalflows.store.records import EXCLUDED, controls_batch, from_json, uncommitted_id
from evalflows.store.rule_outcomes import RuleOutcome
from evalflows.store.sql import ask, fields_of, records_of
from evalflows.store.store import Store

_JUDGES = """
select metric, evaluator, evaluator_version, bool_or(judge_model is not null) from scores
where experiment_id = $1 and subject_kind = 'run' group by all order by all
"""

_SEARCH = "select (observed -> 'search')::varchar from checks where batch_id = $1 and name = 'slices'"

_MESSAGE = "select message from checks where batch_id = $1"

_CONTROLS = "select subject_id, passed from checks where batch_id = $1 and subject_kind = 'judge'"


# Not rows of the tables: pyarrow, which reads those, takes longer to import than all of this.
@dataclass(frozen=True, slots=True, kw_only=True)
class _Experiment:
    """A side of a decision."""

    experiment_id: str
    run_group: str
    spec: str
    state: str
    reason: str | None
    target_kind: str
    application_version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    """A verdict of a decision, by its metric, `contains@split=hard` of a slice."""

    name: str
    metric: str
    candidate_mean: float | None
    baseline_mean: float | None
    n_pairs: int
    minimum_detectable_effect: float | None
    power: float | None
    worst_case_ci_low: float | None
    worst_case_ci_high: float | None
    warning: str | None


def with_limits(store: Store, decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions with what could still be wrong with each, and where it got worse."""
    return [with_slices(store, replace(decision, limits=list(_limits(store, decision)))) for decision in decisions]


def with_slices(store: Store, decision: Decision) -> Decision:
    """Return a decision with the slices in which it got worse, or fails; unchanged if none was searched or did."""
    (rows,) = ask(store, (_SEARCH, [decision.decision_id]))
    if not rows or decision.baseline_apart is None:
        return decision
    fields = from_json(rows[0][0])
    search = SliceSearch(**fields | {"found": [DepartingSlice(**departing) for departing in fields["found"]]})
    is_worse = any(departing.got_worse for departing in search.found)  # then the first one is
    if decision.conclusion != "FAIL" and not is_worse:
        return decision
    command = examples_command(search, str(decision.baseline_experiment_id)) if is_worse else None
    return replace(decision, where=where_lines(search), where_command=command.command if command else None)


def _limits(store: Store, decision: Decision) -> Iterator[str]:
    sides = [decision.candidate_experiment_id, decision.baseline_experiment_id]
    of_sides, judges, verdicts = ask(store, (_SIDES, sides), (_JUDGES, sides[:1]), (_TESTED, [decision.decision_id]))
    experiments = {record.experiment_id: record for record in records_of(_Experiment, of_sides)}
    candidate = experiments[decision.candidate_experiment_id]
    tested = {record.name: record for record in records_of(_Tested, verdicts)}
    (uncommitted,) = ask(store, (_MESSAGE, [uncommitted_id(candidate.run_group)]))
    yield from (sentence for (sentence,) in uncommitted)
    for rule in decision.rules:
        yield from _of_rule(rule, tested.get(rule.metric))
    for name, row in sorted(tested.items()):
        yield from _of_pairs(name, row, decision.n_shared)
    yield from _of_directions(candidate, tested.values())
    metrics = _metrics_of_rules(decision, candidate)
    yield from _of_judges(store, metrics, judges, candidate.run_group)
    yield from _of_stepped(store, decision, metrics)
    yield from _of_versions(decision, experiments)
    yield from (side.text for side in invalid_trials(store, [side for side in sides if side]))
    yield from _of_looks(store, decision, experiments)
    if decision.baseline_experiment_id is None and candidate.state != "completed":  # else it is among the differences
        yield f"the candidate is {candidate.state}{f': {candidate.reason}' if candidate.reason else ''}"


def _of_rule(rule: RuleOutcome, tested: _Tested | None) -> Iterator[str]:
    if _is_untested(rule):  # its text says why
        return
    name, n = f"{rule.metric}, {rule.name}", rule.n
    if rule.n_missing:
        yield f"{name}: {_missing(rule, tested)}"
    if n is not None and n < MIN_EXAMPLES:  # a gate may ask for fewer
        yield f"{name}: n = {n}, fewer than the {MIN_EXAMPLES} that gates ask for by default"
    if rule.rule == "threshold" and _includes_bound(rule):
        yield (
            f"{name}: only the mean counts, and its interval {_interval(rule, rule.low, rule.high)} includes the "
            f"bound {rule.bound:g}: chance may have decided (confident_thresholds take it into account)"
        )
    is_open = rule.outcome == "open" and rule.is_difference
    if is_open and tested and tested.minimum_detectable_effect is not None:
        size = figure(tested.minimum_detectable_effect, tested.metric)
        whose = "" if tested.name == tested.metric else "the slice's "
        yield f"{name}: {whose}{tested.n_pairs} pairs detect a difference of {size} or more ({tested.power:.0%} power)"


def _is_untested(rule: RuleOutcome) -> bool:
    """Return whether a rule is open because it has no estimate or interval, or too few examples."""
    if rule.outcome != "open":
        return False
    has_interval = rule.rule == "threshold" or rule.low is not None
    return rule.value is None or not has_interval or rule.reason_code == "below_min_examples"


def _missing(rule: RuleOutcome, tested: _Tested | None) -> str:
    """Return how many values are missing for a rule, and what they can change at worst."""
    count = f"{rule.n_missing} missing value{'' if rule.n_missing == 1 else 's'}"
    if rule.reason_code == "missing_unbounded":
        return f"{count}; no declared range bounds what they can change"
    effect = f"; the rule is {rule.outcome} in any case" if rule.outcome != "open" else ""
    if rule.reason_code == "missing_could_flip":
        effect = ", which can change the outcome"
    ends = (tested.worst_case_ci_low, tested.worst_case_ci_high) if tested and rule.is_difference else (None, None)
    return f"{count}{effect}" + (f"; worst-case interval {_interval(rule, *ends)}" if None not in ends else "")


def _includes_bound(rule: RuleOutcome) -> bool:
    return rule.low is not None and rule.high is not None and bool(rule.low <= rule.bound <= rule.high)


def _interval(rule: RuleOutcome, low: float | None, high: float | None) -> str:
    return rule_texts(rule, None, low, high)[1]


def _of_directions(candidate: _Experiment, tested: Iterable[_Tested]) -> Iterator[str]:
    """Yield each metric whose direction is assumed, or that is said to have no rare losses, once for all its slices."""
    declared = (from_json(candidate.spec) or {}).get("metrics") or {}
    means: dict[str, list[float | None]] = {}
    for row in tested:
        means.setdefault(row.metric, []).extend((row.candidate_mean, row.baseline_mean))
    for metric, of_metric in sorted(means.items()):
        is_declared = any((declared.get(metric) or {}).get(key) is not None for key in ("higher_is_better", "range"))
        if text := assumed_direction(metric, is_declared, of_metric):
            yield text
        if (declared.get(metric) or {}).get("rare_losses") is False:
            yield f"{metric}: the spec says that rare worst values cannot occur (rare_losses: false)"


def _of_pairs(name: str, tested: _Tested, n_shared: int | None) -> Iterator[str]:
    if tested.warning:
        yield f"{name}: {tested.warning}"
    if name == LATENCY and n_shared and 0 < tested.n_pairs < n_shared:
        which = "those answered side by side, without the first"
        yield f"{LATENCY}: {tested.n_pairs} of {n_shared} pairs: {which}"


def _metrics_of_rules(decision: Decision, candidate: _Experiment) -> dict[str, list[str]]:
    """Return the metrics of the rules by each base metric that they depend on, as composites do on their parts.

    Those whose rules are open because of their judge are left out: the rules say so.
    """
    composites = from_json(candidate.spec).get("composites", [])  # without the specs' models, which are slow to import
    parts = {composite["name"]: {*composite["weights"], *composite.get("requirements", {})} for composite in composites}
    found: dict[str, dict[str, None]] = {}
    for rule in decision.rules:
        metric = base_metric(metric_of(rule.metric))
        for base in () if rule.reason_code in EXCLUDED else (metric, *sorted(parts.get(metric, ()))):
            found.setdefault(base, {})[rule.metric] = None
    return {base: [*metrics] for base, metrics in found.items()}


def _of_judges(
    store: Store, metrics: Mapping[str, Sequence[str]], judges: Sequence[tuple[str, str, str, bool]], run_group: str
) -> Iterator[str]:
    """Yield the judges that neither known-answer controls nor people's labels have validated, or that labels have
    rejected since the decision.

    `judges` are (metric, name, version, whether it is a model), and `metrics` those of the rules by the judge's.
    """
    used: dict[tuple[str, str, bool], list[tuple[str, Sequence[str]]]] = {}
    for metric, evaluator, version, is_model in judges:
        if metric in metrics:
            used.setdefault((evaluator, version, is_model), []).append((metric, metrics[metric]))
    if not used:
        return
    ((controls,), people) = ask(store, (_CONTROLS, [controls_batch(run_group)])), people_checks(store)
    validated = dict(controls)
    for (name, version, is_model), by_metric in used.items():
        of_rules = dict.fromkeys(metric for _, metrics_of_part in by_metric for metric in metrics_of_part)
        judge = f"{', '.join(of_rules)}: the judge {name}"
        checks = [check for base, _ in by_metric if (check := people.get((version, base)))]
        if any(not check.passed for check in checks):
            yield f"{judge} does not agree with people's labels better than chance"
        elif is_model and name not in validated and not checks:
            yield f"{judge} is not validated: it had no known-answer controls, and no check against people's labels"


def _of_stepped(store: Store, decision: Decision, metrics: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the fallbacks and earlier tiers that judged more than a few items in place of the judge."""
    sides = {decision.candidate_experiment_id: "candidate", decision.baseline_experiment_id or "": "baseline"}
    for stepped in stepped_in(store, specs_with_steps(store, [identity for identity in sides if identity])):
        if stepped.metric in metrics:
            yield f"{stepped.text} answers of the {sides[stepped.owner]}"


def _of_versions(decision: Decision, experiments: Mapping[str, "_Experiment"]) -> Iterator[str]:
    """Yield the applications whose version is not known; of two, their differences may already say it."""
    if any(difference["what"] == "target" for difference in from_json(decision.comparability) or ()):
        return
    sides = {"candidate": decision.candidate_experiment_id, "baseline": decision.baseline_experiment_id}
    rows = [(name, row) for name, identity in sides.items() if (row := experiments.get(identity or ""))]
    if unknown := [name for name, row in rows if row.target_kind == "http" and row.application_version is None]:
        yield (
            f"the version of the {' and the '.join(unknown)} is not known: the HTTP application does not say it, and "
            f"may have changed (version, version_url or version_header in the spec says it)"
        )


def _of_looks(store: Store, decision: Decision, experiments: Mapping[str, "_Experiment"]) -> Iterator[str]:
    """Yield how often the final examples were run, why once more than allowed, and which side lacks them."""
    look = look_of(store, experiments[decision.candidate_experiment_id].run_group)
    baseline = experiments.get(decision.baseline_experiment_id or "")
    if baseline is not None and not decision.n_shared:
        if look is not None:
            yield (
                "the baseline has no answers to the final examples: run its version by this gate and approve that run, "
                "or make it a target of the spec"
            )
        elif look_of(store, baseline.run_group) is not None:
            yield "the baseline has answers to the final examples, which this run leaves out: the gate compares on them"
    if look is None:
        return
    if copies := copies_of(store, final_ids(store, [decision.candidate_experiment_id])):
        yield copies_text(copies)
    if look.again is None:
        since = "since the baseline was approved" if look.since else "so far"
        each = "each " if look.is_equal_share else ""
        level = f", {each}at {50 * (1 - decision.confidence_level):.2f} %" if look.share else ""
        yield f"look {look.number} of {look.allowed} at the final examples {since}{level}"
    if unkept := unkept_looks(store, look.snapshot, look.since):
        yield (
            f"{len(unkept)} more {'run' if len(unkept) == 1 else 'runs'} of the final examples, such as {unkept[-1]}: "
            "rows of looks in `checks` were removed"
        )
    for other in looks_until(store, look):
        if other.is_reading:
            yield f"look {other.number} at the final examples was a reading of single ones by {other.by or 'somebody'}"
        if other.again:
            yield f"look {other.number} at the final examples, beyond the {other.allowed} allowed: {other.again}"


_SIDES = f"select {fields_of(_Experiment)} from experiments where experiment_id in ($1, $2)"

_TESTED = f"""
select concat_ws('@', metric, slice) as name, {fields_of(_Tested).removeprefix("name, ")} from verdicts
where run_group = $1
"""
