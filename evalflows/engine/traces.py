"""Running trace evaluations: a spec with what its calls need, made once per process and shared by its chunks."""

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from evalflows.execution.preflight.check_spec import check_judge
from evalflows.execution.preflight.connections import with_shared
from evalflows.execution.preflight.declared_metrics import with_metrics
from evalflows.execution.preflight.loaded_code import check_loaded
from evalflows.execution.preflight.prompt_files import with_all_prompts
from evalflows.execution.prepared import SAMPLE, connections_of, described_evaluator
from evalflows.execution.prepared_evaluator import PreparedEvaluator, prepare_evaluator
from evalflows.execution.resolve import composite_version
from evalflows.execution.run_group import judging_workers
from evalflows.execution.running_experiment import (
    EvaluatorFactory,
    RunnableEvaluator,
    close,
    endpoints_of,
)
from evalflows.execution.trace_runs import Mapper, load_mapper, mapper_version
from evalflows.execution.workers import Workers
from evalflows.llm.budget import Budget
from evalflows.llm.caller import Endpoint
from evalflows.llm.ledger import Ledger
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.reference import load, parts_of
from evalflows.specs.trace_evaluation import TraceEvaluationSpec
from evalflows.specs.watching import MEASURED, TRACES
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_filter import condition
from evalflows.store.queries.trace_items import JudgedBy
from evalflows.store.records import now
from evalflows.store.trace_records import SUBJECT_KINDS, WatermarkRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTraceEvaluation:
    """What the chunks of one batch share."""

    batch: WatermarkRow
    store: Store
    spec: TraceEvaluationSpec
    evaluators: Sequence[RunnableEvaluator]
    composite_versions: Mapping[str, str]
    mapper: Mapper
    mapper_version: str | None
    judging: Workers
    judging_on: Sequence[Endpoint]
    budget: Budget
    made_at: datetime

    @property
    def judged_by(self) -> JudgedBy:
        """Whose scores make an item judged: those of its evaluators, with their tiers and fallbacks, and composites."""
        versions = [judge.version for evaluator in self.evaluators for judge in evaluator.all]
        return JudgedBy(
            evaluation_id=self.batch.evaluation_id,
            kind=SUBJECT_KINDS[self.spec.scope],
            versions=[*versions, *self.composite_versions.values()],
            mapper_version=self.mapper_version,
        )


_running: dict[str, RunningTraceEvaluation] = {}
_lock = threading.Lock()


def prepare_traces(spec: TraceEvaluationSpec) -> TraceEvaluationSpec:
    """Check a spec as a user wrote it, and write prompts, shared connections and declared metrics into it.

    Raise InputError for a filter, a mapper, an evaluator or a connection that cannot be used.
    """
    spec = spec.model_copy(update={"evaluators": [with_all_prompts(judge) for judge in spec.evaluators]})
    prepared = _prepared(spec)
    spec = spec.model_copy(update={"connections": with_shared(spec.connections, connections_of(prepared))})
    spec = with_metrics(spec, prepared)
    for evaluator in prepared:
        for judge in evaluator.all:
            check_judge(judge, spec)
    _check_composites(spec, prepared)
    _check_watch(spec, prepared)
    condition(spec.filter, spec.scope)
    load_mapper(spec.mapper)
    if isinstance(spec.mapper, str):
        check_loaded("mapper", load(spec.mapper))
    return spec


def described(spec: TraceEvaluationSpec) -> list[dict[str, Any]]:
    """Return the evaluators, composites and the mapper as stored with each batch."""
    prepared = _prepared(spec)
    found = [
        {**described_evaluator(evaluator, spec), "sample": evaluator.spec.model_dump(mode="json", include=SAMPLE)}
        for evaluator in prepared
    ]
    versions = {one["name"]: one["version"] for one in found}
    for one, evaluator in zip(found, prepared, strict=True):
        if any(judge.bound.asks_for("evaluations", "scores") for judge in evaluator.all):
            one["version"] = _version_with(versions, one["version"], but=one["name"])
    versions = {one["name"]: one["version"] for one in found}
    found += [
        {
            "name": composite.name,
            "version": _version_with(versions, own := composite_version(composite, spec)),
            "definition": own,  # its version without its evaluators
            "scope": "composite",
        }
        for composite in spec.composites
    ]
    if spec.mapper is not None:
        code = parts_of(load(spec.mapper)) if isinstance(spec.mapper, str) else spec.mapper
        found.append({"name": "mapper", "version": mapper_version(spec.mapper), "scope": "mapper", "code": code})
    return found


def _version_with(versions: Mapping[str, str], own: str, *, but: str | None = None) -> str:
    """Return the version of what is made of the scores of evaluators: theirs count for it.

    Otherwise a changed evaluator would leave a composite of its old scores.
    """
    others = sorted(version for name, version in versions.items() if name != but)
    return hashlib.sha256(repr([own, others]).encode()).hexdigest()[:16]


def running_traces(batch: WatermarkRow) -> RunningTraceEvaluation:
    """Return the running evaluation of a batch, made on first use in this process."""
    with _lock:
        if batch.batch_id not in _running:
            _running[batch.batch_id] = _make(batch)
        return _running[batch.batch_id]


def forget_traces(batch_id: str) -> RunningTraceEvaluation | None:
    """Drop a batch after it has ended. Return its evaluation if this process has worked on it."""
    with _lock:
        ended = _running.pop(batch_id, None)
    close(ended.evaluators if ended else ())
    return ended


def _make(batch: WatermarkRow) -> RunningTraceEvaluation:
    store, spec = Store(), TraceEvaluationSpec.model_validate(json.loads(batch.spec))
    budget = Budget(usd=spec.budget_usd, calls=spec.max_calls)
    factory = EvaluatorFactory(spec, Ledger(store, batch.evaluation_id, fresh=not spec.use_cache), budget)
    prepared = _prepared(spec)
    parts = json.loads(batch.evaluators)
    versions = {one["name"]: one["version"] for one in parts if one.get("scope") != "mapper"}
    made = [factory.evaluator(evaluator, None) for evaluator in prepared]
    evaluators = [replace(one, version=versions[one.bound.name]) if one.asks_for_scores else one for one in made]
    return RunningTraceEvaluation(
        batch=batch,
        store=store,
        spec=spec,
        evaluators=evaluators,
        composite_versions={composite.name: versions[composite.name] for composite in spec.composites},
        mapper=load_mapper(spec.mapper),
        mapper_version=mapper_version(spec.mapper),
        judging=judging_workers(spec, connections_of(prepared)),
        judging_on=endpoints_of(evaluators),
        budget=budget,
        made_at=now(),
    )


def _prepared(spec: TraceEvaluationSpec) -> list[PreparedEvaluator[EvaluatorSpec]]:
    return [prepare_evaluator(evaluator) for evaluator in spec.evaluators]


def _check_composites(spec: TraceEvaluationSpec, prepared: Sequence[PreparedEvaluator[EvaluatorSpec]]) -> None:
    """Raise InputError for a composite of a metric that no evaluator gives; evaluators of users may give any."""
    if not all(evaluator.is_ours for evaluator in prepared):
        return
    known = {metric for evaluator in prepared for metric in evaluator.metrics} | {"latency", "cost", "tokens", "length"}
    for composite in spec.composites:
        if unknown := composite.metrics - known:
            got, wanted = min(unknown), ", ".join(sorted(known))
            raise InputError(f"composite {composite.name!r}: no evaluator gives {got!r}, wanted one of {wanted}")


def _check_watch(spec: TraceEvaluationSpec, prepared: Sequence[PreparedEvaluator[EvaluatorSpec]]) -> None:
    """Raise InputError for a watch rule on a metric that nothing gives; evaluators of users may give any."""
    if not all(evaluator.is_ours for evaluator in prepared):
        return
    known = {metric for evaluator in prepared for metric in evaluator.metrics}
    known |= {composite.name for composite in spec.composites} | {*MEASURED}
    for rule in spec.watch:
        wanted = {*known, TRACES} if rule.kind == "failure_share" else known
        if rule.metric not in wanted:
            raise InputError(f"watch: no evaluator gives {rule.metric!r}, wanted one of {', '.join(sorted(wanted))}")
