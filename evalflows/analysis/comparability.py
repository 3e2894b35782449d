"""Whether two experiments can be compared: what differs in their examples, targets, evaluators and judges."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalflows.analysis.pairing import MatchedExamples
from evalflows.specs.code_versions import listed
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.described import DescribedEvaluator, from_described
from evalflows.store.records import ExperimentRow, Json, Reason, answered_by
from evalflows.store.sql import ask
from evalflows.store.store import Store

UNKNOWN_UNLESS_SAID = "http"
"""The kind of target whose application only says itself which version it is."""

Described = Mapping[str, DescribedEvaluator]
"""Descriptions of evaluators, by name."""

JudgeModels = Mapping[tuple[str, str], str]
"""The judge models, by metric and by the tier or fallback that decided."""

SHORT = 8
"""Characters of a hash that are shown."""

_SAME = {
    "python": "the target's code is the same on both sides: a difference is due to chance, or to what the code does "
    + "not show (services, environment variables, data)",
    "chat": "the target's prompt, model and settings are the same on both sides: a difference is due to chance, or to "
    + "a change at the provider",
    "http": "the application says the same version on both sides: any difference is due to chance",
    "conversation": "the target, its user and its world are the same on both sides: a difference is due to chance, or "
    + "to a change at the provider",
    "recorded": "the answers are the same recorded ones on both sides",
}
"""What the same target means, by its kind."""

_JUDGES = """
select metric, coalesce(decided_by, ''), string_agg(distinct judge_model, ', ' order by judge_model) from scores
where experiment_id = ? and judge_model is not null and status = 'scored' group by 1, 2
"""


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
    matched: MatchedExamples,
    spec: ExperimentSpec,
    judges: tuple[JudgeModels, JudgeModels],
) -> list[Difference]:
    """Return all unintended differences; `judges` are the candidate's and the baseline's judge models."""
    return [
        *_of_examples(candidate, baseline, matched),
        *_of_runs(candidate, baseline),
        *_of_evaluators(evaluators_of(candidate), evaluators_of(baseline), spec),
        *_of_judges(*judges),
    ]


def evaluators_of(row: ExperimentRow) -> dict[str, DescribedEvaluator]:
    """Return the description of each evaluator of an experiment, by name."""
    return {evaluator.name: evaluator for evaluator in from_described(row.evaluators)}


def version_differences(candidate: Described, baseline: Described, spec: ExperimentSpec) -> list[Difference]:
    """Return the metrics scored by different versions of an evaluator, and the composites that depend on them."""
    shared = candidate.keys() & baseline.keys()
    changed = {name for name in shared if candidate[name].version != baseline[name].version}
    differences = [
        Difference(what="evaluator", text=_versions(name, candidate, baseline), metric=name, refuses=True)
        for name in sorted(changed)
    ]
    for composite in spec.composites:
        if parts := sorted(composite.metrics & changed):
            text = f"{composite.name} depends on {parts[0]}, and {_versions(parts[0], candidate, baseline)}"
            differences.append(Difference(what="evaluator", text=text, metric=composite.name, refuses=True))
    return differences


def incomparable_metrics(differences: Sequence[Difference]) -> dict[str, Reason]:
    """Return the incomparable metrics, and why."""
    return {
        difference.metric: Reason("not_comparable", difference.text)
        for difference in reversed(differences)
        if difference.refuses and difference.metric is not None
    }


def _versions(name: str, candidate: Described, baseline: Described) -> str:
    old, new = (side[name].declared_version or side[name].version[:SHORT] for side in (baseline, candidate))
    parts = changed_parts(*(side[name].code or {} for side in (candidate, baseline)))
    changed = f" ({listed(parts)} changed)" if parts else ""
    return f"{name} was scored by a different version of its evaluator: {old} then, {new} now{changed}"


def _of_examples(candidate: ExperimentRow, baseline: ExperimentRow, matched: MatchedExamples) -> list[Difference]:
    if candidate.snapshot_id == baseline.snapshot_id:
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
            "cannot tell whether the target changed: an HTTP application's code is not known (version, version_url or "
            f"version_header in the spec says its version){_commits(candidate, baseline)}"
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


def _of_evaluators(candidate: Described, baseline: Described, spec: ExperimentSpec) -> list[Difference]:
    differences = version_differences(candidate, baseline, spec)
    for name in sorted(candidate.keys() & baseline.keys()):
        if candidate[name].sample != baseline[name].sample:
            text = f"{name} scored a different sample: only examples scored on both sides are compared"
            differences.append(Difference(what="sample", text=text, metric=name))
    return differences


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


def judge_models(store: Store, row: ExperimentRow) -> JudgeModels:
    """Return the models that judged an experiment."""
    (rows,) = ask(store, (_JUDGES, [row.experiment_id]))
    return {(metric, decided_by): models for metric, decided_by, models in rows}
