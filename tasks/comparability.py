"""What differs between two experiments besides what was changed on purpose, and whether they may be compared at all."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specs.experiment import ExperimentSpec
from store.catalog import ask
from store.parquet import Store
from store.records import ExperimentRow
from tasks.shared_examples import Shared

SHORT = 8
"""Letters of a hash that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something in which two sides are not alike."""

    what: str
    text: str
    metric: str | None = None  # which it concerns; None: all
    refuses: bool = False  # whether a comparison would say nothing of the targets

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def differences(
    store: Store, candidate: ExperimentRow, baseline: ExperimentRow, shared: Shared, spec: ExperimentSpec
) -> list[Difference]:
    """Whatever differs between a candidate and the baseline."""
    return [
        *_of_examples(candidate, baseline, shared),
        *_of_runs(candidate, baseline),
        *_of_evaluators(evaluators_of(candidate), evaluators_of(baseline), spec),
        *_of_judges(_judges(store, candidate), _judges(store, baseline)),
    ]


def evaluators_of(row: ExperimentRow) -> dict[str, dict[str, Any]]:
    """How each evaluator of an experiment is described, by its name."""
    return {one["name"]: one for one in json.loads(row.evaluators)}


def of_versions(
    ours: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]], spec: ExperimentSpec
) -> list[Difference]:
    """Metrics that two versions of an evaluator gave, and composites that rest on such."""
    changed = {name for name in ours.keys() & theirs.keys() if ours[name]["version"] != theirs[name]["version"]}
    found = [
        Difference(what="evaluator", text=_versions(name, ours, theirs), metric=name, refuses=True)
        for name in sorted(changed)
    ]
    for composite in spec.composites:
        if parts := sorted(composite.metrics & changed):
            text = f"{composite.name} weighs {parts[0]}, and {_versions(parts[0], ours, theirs)}"
            found.append(Difference(what="evaluator", text=text, metric=composite.name, refuses=True))
    return found


def refused(found: Sequence[Difference]) -> dict[str, str]:
    """The metrics that may not be compared, and why."""
    return {one.metric: one.text for one in reversed(found) if one.refuses and one.metric is not None}


def _versions(name: str, ours: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]]) -> str:
    old, new = (side[name].get("declared_version") or side[name]["version"][:SHORT] for side in (theirs, ours))
    return f"{name} was judged by another version of its evaluator: {old} then, {new} now"


def _of_examples(candidate: ExperimentRow, baseline: ExperimentRow, shared: Shared) -> list[Difference]:
    if candidate.snapshot_id == baseline.snapshot_id:
        return []
    text = f"other examples: {len(shared.examples)} are shared, with the same inputs and references, and only these are"
    text += " compared" if shared.examples else " compared, so that nothing can be"
    if shared.left_out:
        text += f"; {shared.absent} are on one side only, {shared.changed} have other inputs or references"
    return [Difference(what="examples", text=text)]


def _of_runs(candidate: ExperimentRow, baseline: ExperimentRow) -> list[Difference]:
    found = []
    if candidate.repetitions != baseline.repetitions:
        text = f"{candidate.repetitions} repetitions of the candidate, {baseline.repetitions} of the baseline"
        found.append(Difference(what="repetitions", text=text))
    if candidate.target_version == baseline.target_version:
        found.append(Difference(what="target", text="the target is the same on both sides: what differs is chance"))
    for name, row in (("candidate", candidate), ("baseline", baseline)):
        if row.state != "completed":
            why = f": {row.reason}" if row.reason else ""
            found.append(Difference(what="state", text=f"the {name} {row.name!r} is {row.state}{why}"))
    return found


def _of_evaluators(
    ours: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]], spec: ExperimentSpec
) -> list[Difference]:
    found = of_versions(ours, theirs, spec)
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name].get("sample") != theirs[name].get("sample"):
            text = f"{name} judged another sample: only what both sides have of it is compared"
            found.append(Difference(what="sample", text=text, metric=name))
    return found


def _of_judges(ours: Mapping[tuple[str, str], str], theirs: Mapping[tuple[str, str], str]) -> list[Difference]:
    """The models that judged, which may differ though the evaluator does not, where its connection names another.

    Each tier, and each fallback, by itself: which of them decide an example is no matter of the judge.
    """
    changed = {key[0]: key for key in sorted(ours.keys() & theirs.keys()) if ours[key] != theirs[key]}
    return [
        Difference(
            what="judge",
            text=f"{metric} was judged by another model: {theirs[key]} then, {ours[key]} now",
            metric=metric,
            refuses=True,
        )
        for metric, key in changed.items()
    ]


def _judges(store: Store, row: ExperimentRow) -> dict[tuple[str, str], str]:
    (found,) = ask(store, (_JUDGES, [row.experiment_id]))
    return {(metric, decided_by): models for metric, decided_by, models in found}


_JUDGES = """
select metric, coalesce(decided_by, ''), string_agg(distinct judge_model, ', ' order by judge_model) from scores
where experiment_id = ? and judge_model is not null and status = 'scored' group by 1, 2
"""
