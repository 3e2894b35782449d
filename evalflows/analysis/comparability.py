"""Whether two experiments can be compared: what differs in their examples, targets, evaluators and judges."""

from __future__ import annotations  # types of specs, which are slow to import

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalflows.specs.code_versions import listed
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import USER, USER_CHECK
from evalflows.store.described import DescribedEvaluator, from_described, panels_of
from evalflows.store.records import ExperimentRow, Json, Reason, answered_by
from evalflows.store.sql import ask
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.analysis.pairing import MatchedExamples
    from evalflows.specs.metrics import CompositeSpec

UNKNOWN_UNLESS_SAID = "http"
"""The kind of target whose application only says itself which version it is."""

Described = Mapping[str, DescribedEvaluator]
"""Descriptions of evaluators, by name."""

JudgeModels = Mapping[tuple[str, str], str]
"""The judge models, by metric and by the tier or fallback that decided."""

JUDGE_DRIFT = "judge_drift"
"""What a difference is that is due to a judge's drift."""

JUDGE_LOST = "judge_lost"
"""What it is if the judge no longer tells good anchors from bad ones, so that its scores decide nothing."""

SHORT = 8
"""Characters of a hash that are shown."""

_SAME = {
    "python": "the target's code is the same on both sides: a difference is due to chance, or to what the code does "
    + "not show (services, environment variables, data)",
    "chat": "the target's prompt, model and settings are the same on both sides: a difference is due to chance, or to "
    + "a change at the provider",
    "http": "the application reports the same version on both sides: any difference is due to chance",
    "conversation": "the target, its user and its world are the same on both sides: a difference is due to chance, or "
    + "to a change at the provider",
    "recorded": "both sides use the same recorded answers",
}
"""What the same target means, by its kind."""

_JUDGES = """
select metric, coalesce(decided_by, ''), string_agg(distinct judge_model, ', ' order by judge_model) from scores
where experiment_id = ? and judge_model is not null and status = 'scored' group by 1, 2
"""


_SERVED = """
select coalesce(evaluator, ''), model, list(distinct coalesce(answered_by, model)),
       coalesce(list(distinct system_fingerprint) filter (system_fingerprint <> ''), []), min(started_at)
from source.calls where experiment_id = ? and status = 'ok' and kind in ('chat', 'embedding') group by all
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a provider says has answered the calls of one kind that an experiment paid for."""

    models: frozenset[str]
    fingerprints: frozenset[str]  # none if it gives none
    since: datetime


ServedBy = Mapping[tuple[str, str], Served]
"""What answered, by who asked (an evaluator, or '' for the target) and the model that was asked for."""


def is_same_target(candidate: ExperimentRow, baseline: ExperimentRow) -> bool | None:
    """Return whether two experiments had the same target, as far as can be seen; None if that cannot be told."""
    if candidate.target_version != baseline.target_version:
        return False
    if candidate.application_version != baseline.application_version:
        return False
    kind = answered_by(candidate.target_kind, candidate.target, candidate.spec)
    return None if kind == UNKNOWN_UNLESS_SAID and candidate.application_version is None else True


def changed_parts(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """Return the names of the parts of code that differ, by name; `new` and `old` are hashes by part.

    Empty if no part has the same name: then it is other code, not changed code.
    """
    if not new.keys() & old.keys():
        return []
    return sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))


def parts_in(code: Json | None) -> dict[str, str]:
    """Return the parts of a target's code as stored; empty if there is none."""
    return dict(json.loads(code)) if code else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An unintended difference between two experiments."""

    what: str
    text: str
    metric: str | None = None  # None: it concerns all metrics
    refuses: bool = False  # whether it makes the metric incomparable


def differences(
    candidate: ExperimentRow,
    baseline: ExperimentRow,
    matched: MatchedExamples | None,
    composites: Sequence[CompositeSpec],
    judges: tuple[JudgeModels, JudgeModels],
    served: tuple[ServedBy, ServedBy],
) -> list[Difference]:
    """Return all unintended differences. `matched` is not needed for examples of one snapshot.

    `judges` are the candidate's and the baseline's judge models, `served` what answered their calls.
    """
    return [
        *_of_examples(candidate, baseline, matched),
        *_of_runs(candidate, baseline),
        *_of_evaluators(candidate, baseline, composites),
        *_of_judges(*judges),
        *_of_providers(*served),
    ]


def evaluators_of(row: ExperimentRow) -> dict[str, DescribedEvaluator]:
    """Return the description of each evaluator of an experiment, by name."""
    return {evaluator.name: evaluator for evaluator in from_described(row.evaluators)}


def version_differences(
    candidate: Described,
    baseline: Described,
    composites: Sequence[CompositeSpec],
    settings: Mapping[str, Sequence[str]] | None = None,
) -> list[Difference]:
    """Return the metrics scored by different versions of an evaluator, and the composites that depend on them.

    `settings` are those that differ between the specs of both, by evaluator, as far as they are known.
    """
    known = settings or {}
    shared = candidate.keys() & baseline.keys()
    changed = {name for name in shared if candidate[name].version != baseline[name].version}
    differences = [
        Difference(what="evaluator", text=_versions(name, candidate, baseline, known), metric=name, refuses=True)
        for name in sorted(changed)
    ]
    for composite in composites:
        if parts := sorted(composite.metrics & changed):
            text = f"{composite.name} depends on {parts[0]}, and {_versions(parts[0], candidate, baseline, known)}"
            differences.append(Difference(what="evaluator", text=text, metric=composite.name, refuses=True))
    return differences


def incomparable_metrics(differences: Sequence[Difference]) -> dict[str, Reason]:
    """Return the incomparable metrics, and why."""
    return {
        difference.metric: Reason(
            "judge_drifted" if difference.what in (JUDGE_DRIFT, JUDGE_LOST) else "not_comparable", difference.text
        )
        for difference in reversed(differences)
        if difference.refuses and difference.metric is not None
    }


def _versions(name: str, candidate: Described, baseline: Described, settings: Mapping[str, Sequence[str]]) -> str:
    old, new = (side[name].declared_version or side[name].version[:SHORT] for side in (baseline, candidate))
    parts = [*settings.get(name, ()), *changed_parts(*(side[name].code or {} for side in (candidate, baseline)))]
    changed = f" ({listed(parts)} changed)" if parts else ""
    return f"{name} was scored by a different version of its evaluator: {old} then, {new} now{changed}"


def _of_examples(
    candidate: ExperimentRow, baseline: ExperimentRow, matched: MatchedExamples | None
) -> list[Difference]:
    if matched is None or candidate.snapshot_id == baseline.snapshot_id:
        return []
    shared = f"the {matched.n_shared} shared ones, with the same inputs and references"
    text = f"different examples: only {shared}, are compared"
    if not matched.n_shared:
        text = "different examples: none are shared with the same inputs and references, so nothing can be compared"
    if matched.left_out:
        text += f"; {matched.absent} are on one side only, {matched.changed} have different inputs or references"
    return [Difference(what="examples", text=text)]


def _of_runs(candidate: ExperimentRow, baseline: ExperimentRow) -> list[Difference]:
    differences = []
    if candidate.repetitions != baseline.repetitions:
        text = f"{candidate.repetitions} repetitions of the candidate, {baseline.repetitions} of the baseline"
        differences.append(Difference(what="repetitions", text=text))
    if about_targets := _of_targets(candidate, baseline):
        differences.append(Difference(what="target", text=about_targets))
    for name, row in (("candidate", candidate), ("baseline", baseline)):
        if row.state != "completed":
            why = f": {row.reason}" if row.reason else ""
            differences.append(Difference(what="state", text=f"the {name} {row.name!r} is {row.state}{why}"))
    return differences


def _of_targets(candidate: ExperimentRow, baseline: ExperimentRow) -> str | None:
    """Return what is known of a change of the target. None if the change is plain, as between two targets of a spec."""
    parts = changed_parts(parts_in(candidate.target_code), parts_in(baseline.target_code))
    if parts:
        if candidate.run_group == baseline.run_group:
            return None
        return f"the target's code changed: {listed(parts)}{_commits(candidate, baseline)}"
    is_same = is_same_target(candidate, baseline)
    if is_same is None:
        return (
            "cannot tell whether the target changed: an HTTP application's code is unknown (set version, version_url "
            f"or version_header in the spec){_commits(candidate, baseline)}"
        )
    return _SAME[candidate.target_kind] if is_same else None


def is_plain_change(candidate: ExperimentRow, baseline: ExperimentRow) -> bool:
    """Return whether commits say nothing of the targets' difference: two targets of different code, or the same one."""
    parts = changed_parts(parts_in(candidate.target_code), parts_in(baseline.target_code))
    return not parts and is_same_target(candidate, baseline) is not None


def commit_change(candidate: ExperimentRow, baseline: ExperimentRow) -> str | None:
    """Return the commits at which both ran, if these are known and differ: `1a2b3c4d then, 5e6f7a8b now`."""
    then, now = (
        f"{row.git_commit[:SHORT]}{' with uncommitted changes' if row.git_dirty else ''}" if row.git_commit else None
        for row in (baseline, candidate)
    )
    return f"{then} then, {now} now" if then and now and then != now else None


def _commits(candidate: ExperimentRow, baseline: ExperimentRow) -> str:
    change = commit_change(candidate, baseline)
    return f"; git commit {change}" if change else ""


def _of_evaluators(
    of_candidate: ExperimentRow, of_baseline: ExperimentRow, composites: Sequence[CompositeSpec]
) -> list[Difference]:
    candidate, baseline = evaluators_of(of_candidate), evaluators_of(of_baseline)
    settings = {
        name: changed
        for name in candidate.keys() & baseline.keys()
        if (changed := _changed_settings(name, of_candidate, of_baseline))
    }
    differences = version_differences(candidate, baseline, composites, settings)
    for name in sorted(candidate.keys() & baseline.keys()):
        if candidate[name].sample != baseline[name].sample:
            text = f"{name} scored a different sample: only examples scored on both sides are compared"
            differences.append(Difference(what="sample", text=text, metric=name))
    return differences


def _changed_settings(name: str, candidate: ExperimentRow, baseline: ExperimentRow) -> list[str]:
    """Return the settings of an evaluator that differ between two specs: fields and arguments, such as its prompt."""
    now, then = (_settings(name, row.spec) for row in (candidate, baseline))
    return sorted(setting for setting in now.keys() | then.keys() if now.get(setting) != then.get(setting))


def _settings(name: str, spec: Json) -> dict[str, Any]:
    """Return what a spec sets of an evaluator that its version depends on."""
    document = json.loads(spec)
    judges = [*document.get("evaluators", ()), *document.get("summary_evaluators", ())]
    judge: dict[str, Any] = next((judge for judge in judges if (judge.get("name") or judge["use"]) == name), {})
    of_judge = ("use", "connection", "model", "sees", "repeats", "combine", "tiers")
    settings = {field: judge.get(field) for field in of_judge}
    connection = document.get("connections", {}).get(judge.get("connection") or "", {})
    of_connection = {f"the connection's {field}": connection.get(field) for field in ("base_url", "model")}
    return {**settings, **of_connection, **(judge.get("args") or {})}


def _of_judges(candidate: JudgeModels, baseline: JudgeModels) -> list[Difference]:
    """Judge models can differ for the same evaluator if its connection names another model.

    Tiers and fallbacks are compared one by one: which of them decides an example depends on the example.
    """
    shared = sorted(candidate.keys() & baseline.keys())
    changed = {key[0]: key for key in shared if candidate[key] != baseline[key]}
    return [
        Difference(
            what="judge",
            text=f"{metric} was judged by a different model: {baseline[key]} then, {candidate[key]} now",
            metric=metric,
            refuses=True,
        )
        for metric, key in changed.items()
    ]


def _of_providers(candidate: ServedBy, baseline: ServedBy) -> Iterator[Difference]:
    """Yield what the providers have changed behind the names of models: a judge's model is compared by `_of_judges`."""
    for asked_by, model in sorted(candidate.keys() & baseline.keys()):
        now, then = candidate[asked_by, model], baseline[asked_by, model]
        who, is_judge = asked_by or "the target", asked_by not in ("", USER, USER_CHECK)
        if not is_judge and now.models.isdisjoint(then.models):
            changed = f"another model: {', '.join(sorted(then.models))} then, {', '.join(sorted(now.models))} now"
        elif now.fingerprints and then.fingerprints and now.fingerprints.isdisjoint(then.fingerprints):
            of_each = (", ".join(sorted(side.fingerprints)[:3]) for side in (then, now))
            changed = f"another system_fingerprint: {' then, '.join(of_each)} now"
        else:
            continue
        text = f"the provider of {model} has answered {who} since {now.since:%Y-%m-%d %H:%M} with {changed}"
        yield Difference(what="provider", text=text, metric=asked_by if is_judge else None)


def served_by(store: Store, row: ExperimentRow) -> ServedBy:
    """Return what answered the calls that an experiment paid for; answers from the ledger are not among these."""
    with store.reading(only={"experiment_id": [row.experiment_id]}):
        calls = store.query(_SERVED, [row.experiment_id])
    return {
        (asked_by, model): Served(models=frozenset(models), fingerprints=frozenset(fingerprints), since=since)
        for asked_by, model, models, fingerprints, since in calls
    }


def judge_models(store: Store, row: ExperimentRow) -> JudgeModels:
    """Return the models that judged an experiment."""
    with store.reading(only={"experiment_id": [row.experiment_id]}):
        (rows,) = ask(store, (_JUDGES, [row.experiment_id]))
    panels = panels_of(row.spec)  # whose judges count for all answers, also where one of them failed
    return {(metric, "" if metric in panels else decided_by): models for metric, decided_by, models in rows}
