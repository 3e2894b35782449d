"""Judging again: specs by which other judges, or the same ones today, judge stored answers, pairs of answers, or items
of production. Their metadata says what was judged before.

Of a run group, the specs of experiments have the targets again, each replaying the answers of its experiment with their
latencies and costs. They have no gates: what other judges would do to a gate is computed, and decides nothing.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from evalflows.engine.budget_parts import AnySpec
from evalflows.engine.may_call_models import evaluator_may_call_unrecorded
from evalflows.engine.prepare import Of, fields_with_texts, prepare
from evalflows.engine.spec_evaluators import connections_of, prepare_evaluator
from evalflows.evaluators.binding import Scope
from evalflows.llm.connections import resolve
from evalflows.llm.local import LOCAL_MODEL
from evalflows.llm.prices import Tokens, price_of
from evalflows.specs.comparison import ComparisonSpec, PairJudgeSpec
from evalflows.specs.connections import Connections, ConnectionSpec
from evalflows.specs.errors import InputError, NotFoundError, first_problem
from evalflows.specs.evaluator import PANEL, SAMPLE, SHARED, EvaluatorSpec, JudgeSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import load_text, read_text
from evalflows.specs.frozen import dataclass
from evalflows.specs.target import RecordedTarget
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.lookup import find_comparison, find_experiments, unique_name
from evalflows.store.queries.two_judges import JUDGED_AGAIN, metric_judges
from evalflows.store.records import ComparisonSetRow, ExperimentRow, derived_id, new_id, now
from evalflows.store.row_specs import comparison_spec, experiment_spec
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

SUFFIX = "judged-again"

_UNFINISHED = f"""
select spec from source.watermarks
where (spec -> '$.metadata.{JUDGED_AGAIN}') ->> 'evaluation' = ?
qualify row_number() over (partition by evaluation_id order by recorded_at desc) = 1 and state <> 'completed'
order by started_at desc
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenJudges:
    """Evaluators as a spec has them, and the connections that their file has."""

    evaluators: Sequence[Any]
    connections: Mapping[str, ConnectionSpec] = field(default_factory=dict)


def load_judges(path: str | Path) -> GivenJudges:
    """Read judges from a file (YAML): an evaluator, a list of them, or a spec with `evaluators`, and `connections`.

    Raise InputError, in one line, if there are none.
    """
    where, text, wanted = str(path), read_text(path), "an evaluator (use: …), a list of them, or a spec with evaluators"
    is_list = re.match(r"(\s|#.*\n)*-\s", text) is not None
    fields = load_text(f"evaluators:\n{text}" if is_list else text, where, wanted=wanted)
    given = fields.get("evaluators", fields if "use" in fields else [])
    if not (evaluators := given if isinstance(given, list) else [given]):
        raise InputError(f"{where}: got {', '.join(map(str, fields)) or 'nothing'}, wanted {wanted}")
    return GivenJudges(evaluators=evaluators, connections=_parsed(Connections, fields.get("connections", {}), where))


def _parsed(kind: Any, content: object, where: str) -> Any:
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        raise InputError(first_problem(error, where, kind)) from error


def experiments_again(references: Sequence[str], judges: GivenJudges | None = None) -> ExperimentSpec:
    """Return the spec by which judges judge the answers of experiments again; None: their own, and nothing is taken
    from the ledger.

    References are ids, names or run groups. Experiments of several runs are one run then, with the first as its
    baseline. Raise InputError if they have not the same examples, or if a judge stands in for none.
    """
    store = Store()
    ids = dict.fromkeys(found for reference in references for found in find_experiments(store, reference))
    rows: list[ExperimentRow] = [store.read("experiments", identity)[0] for identity in ids]
    for name in ("snapshot_id", "repetitions"):
        if len({getattr(row, name) for row in rows}) > 1:
            got = ", ".join(f"{row.name} with {getattr(row, name)}" for row in rows)
            raise InputError(f"judge: {name}: got {got}, wanted the same examples and repetitions for all")
    spec, names = experiment_spec(rows[-1]), [row.target for row in rows]
    sources = {
        row.target if names.count(row.target) == 1 else unique_name(row.target, row.experiment_id): row.experiment_id
        for row in rows
    }
    base = spec.baseline or spec.targets[0].name
    is_one_run = len({row.run_group for row in rows}) == 1
    return _again(
        replaying(spec, sources),
        judges,
        [*sources.values()],
        name=f"{spec.name if len(rows) > 1 else rows[0].name}-{SUFFIX}",
        description=f"Answers of {', '.join(row.name for row in rows)}, judged again",
        baseline=base if is_one_run and base in names else next(iter(sources)),
        run_key=None,
    )


def replaying(spec: ExperimentSpec, sources: Mapping[str, str], **changes: Any) -> ExperimentSpec:
    """Return the spec whose targets replay the answers of experiments, by the targets' names; no gate decides on it."""
    targets = [RecordedTarget(kind="recorded", name=name, experiment=source) for name, source in sources.items()]
    return spec.model_copy(update={"targets": targets, "baseline": None, "gates": [], "compare": None} | changes)


def comparison_again(reference: str, judges: GivenJudges | None = None) -> ComparisonSpec:
    """Return the spec by which judges judge the pairs of a comparison again, in the same order of presentation.

    Raise InputError for recorded votes, and if a judge stands in for none.
    """
    store = Store()
    row: ComparisonSetRow = store.read("comparison_sets", find_comparison(store, reference))[0]
    spec, name = comparison_spec(row), f"{row.name}-{SUFFIX}"
    if spec.votes is not None:
        raise InputError(f"judge: comparison {row.name!r}: got recorded votes, wanted a comparison by judges")
    description = f"Pairs of {row.name}, judged again"
    return _again(spec, judges, [row.comparison_id], name=name, description=description, run_key=None)


def window_again(
    evaluation: str, since: datetime, until: datetime | None = None, judges: GivenJudges | None = None
) -> TraceEvaluationSpec:
    """Return the spec by which judges judge again what a trace evaluation judges, for a backfill of a window.

    It has a name of its own, so that the evaluation's scores, watermark and rules stay as they are. If the same was
    begun before and has not ended, it is that one's. Raise InputError for an evaluation that has judged nothing.
    """
    store = Store()
    query = "select spec from source.watermarks where name = ? order by recorded_at desc limit 1"
    if not (found := store.query(query, [evaluation])):
        known = store.query("select distinct name from source.watermarks order by 1")
        names = ", ".join(name for (name,) in known) or "none yet"
        raise NotFoundError(f"--in {evaluation!r}: not in {store.layout.root}, wanted a trace evaluation: {names}")
    again = _again(
        TraceEvaluationSpec.model_validate_json(found[0][0]),
        judges,
        {"evaluation": evaluation, "since": since.isoformat(), "until": (until or now()).isoformat()},
        name=f"{evaluation}-{SUFFIX}-{derived_id(new_id('again'))[:8]}",
        description=f"What {evaluation} judges since {since:%Y-%m-%d %H:%M}, judged again",
        watch=[],
        max_items=None,
    )
    for (text,) in store.query(_UNFINISHED, [evaluation]):
        begun = TraceEvaluationSpec.model_validate_json(text)
        is_same_window = window_of(begun)[: 1 + bool(until)] == window_of(again)[: 1 + bool(until)]
        if is_same_window and begun.evaluators == fields_with_texts(again)["evaluators"]:
            return again.model_copy(update={"name": begun.name, "metadata": begun.metadata})
    return again


def window_of(spec: TraceEvaluationSpec) -> list[datetime]:
    """Return the ends of the window that a spec judges again."""
    return [datetime.fromisoformat(spec.metadata[JUDGED_AGAIN][end]) for end in ("since", "until")]


def replays(spec: ExperimentSpec) -> bool:
    """Return whether a spec judges stored answers again, so that its final examples have been answered."""
    sources = [isinstance(target, RecordedTarget) and target.experiment is not None for target in spec.targets]
    return JUDGED_AGAIN in spec.metadata and all(sources)


def _again(spec: Of, judges: GivenJudges | None, before: object, **changes: Any) -> Of:
    """Return a spec with the judges that are given, and what was judged before in its metadata."""
    scope: Scope = "pair" if isinstance(spec, ComparisonSpec) else "item"
    kind = list[PairJudgeSpec] if scope == "pair" else list[EvaluatorSpec]
    given = None if judges is None else _parsed(kind, list(judges.evaluators), "--with")
    common = {
        "evaluators": _standing_in(spec.evaluators, given, scope),
        "metadata": {**spec.metadata, JUDGED_AGAIN: before},
        "connections": {**spec.connections, **(judges.connections if judges else {})},
        "use_cache": spec.use_cache and judges is not None,
    }
    return cast("Of", spec.model_copy(update=common | changes))


def _standing_in(own: Sequence[JudgeSpec], given: Sequence[JudgeSpec] | None, scope: Scope) -> list[JudgeSpec]:
    """Return evaluators in which the given ones stand in for those of the same metric, on the same sample and with the
    same controls; None: as they are. A single one stands in for a single judge, whatever its name.

    Raise InputError for one that stands in for none.
    """
    if given is None:
        return list(own)
    if panel := next((judge for judge in given if judge.use == PANEL), None):
        raise InputError(f"--with: got the panel {panel.metric!r}, wanted its judges, each named like an earlier one")
    prepared = [prepare_evaluator(evaluator, scope) for evaluator in own]
    names = [evaluator.metric for evaluator in own]
    judges = [p.name for p in prepared if connections_of([p]) or any(map(evaluator_may_call_unrecorded, p.all))]
    judges = judges or names
    if len(given) == len(judges) == 1 and given[0].metric not in names:
        given = [given[0].model_copy(update={"name": judges[0]})]
    by_name = {evaluator.metric: evaluator for evaluator in given}
    if unknown := by_name.keys() - {*names}:
        raise InputError(
            f"--with: got the judge {min(unknown)!r}, wanted the name of the one that it stands in for: "
            f"{', '.join(judges)} (name: …)"
        )
    standing_in = [_with_settings_of(evaluator, by_name.get(evaluator.metric, evaluator)) for evaluator in own]
    bundles = Counter(judge.bundle for judge in standing_in if isinstance(judge, EvaluatorSpec))
    return [
        judge.model_copy(update={"bundle": None})
        if isinstance(judge, EvaluatorSpec) and bundles[judge.bundle] == 1
        else judge
        for judge in standing_in
    ]


def _with_settings_of(own: JudgeSpec, given: JudgeSpec) -> JudgeSpec:
    kept = {"controls": own.controls} if given.controls is None else {}
    if not isinstance(own, EvaluatorSpec) or not isinstance(given, EvaluatorSpec):
        return given.model_copy(update=kept)
    if not given.is_sampled:
        kept |= {name: getattr(own, name) for name in SAMPLE}
    judge = given.model_copy(update=kept)
    if given.bundle is None and all(getattr(own, name) == getattr(judge, name) for name in SHARED):
        of_bundle = {name: getattr(own, name) for name in ("bundle", "bundle_sample", "bundle_unchecked")}
        judge = judge.model_copy(update=of_bundle)
    return judge


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJudge:
    """A judge that calls a model, and its judgements, as many as before."""

    metric: str
    model: str
    judgements: int
    usd: float | None  # with the tokens of the judge before; None if these or the price are unknown


def planned_again(spec: AnySpec) -> list[PlannedJudge]:
    """Return what each judge that calls a model has to judge, and what that may cost. Nothing is called.

    A plan of experiments knows more of built-in judges.
    """
    prepared, found, before = prepare(spec), [], spec.metadata[JUDGED_AGAIN]
    if isinstance(spec, TraceEvaluationSpec):
        judged = metric_judges(Store(), "items", [evaluation_id(before["evaluation"])], window_of(spec))
    else:
        judged = metric_judges(Store(), "answers" if isinstance(spec, ExperimentSpec) else "pairs", before, ())
    judges = {judge.metric: judge for judge in judged}
    for evaluator in prepared.evaluators:
        if evaluator.connection is None:
            continue
        connection, was = resolve(evaluator.connection, prepared.spec.connections), judges.get(evaluator.name)
        model = evaluator.spec.model or connection.model or LOCAL_MODEL
        price, usd = price_of(connection, model), None
        judgements = was.n_judged + was.n_failed if was else 0
        if price and was and was.tokens_in is not None and was.tokens_out is not None:
            each = price.cost(Tokens(ceil(was.tokens_in), None, ceil(was.tokens_out)))
            usd = None if each is None else each * judgements
        found.append(PlannedJudge(metric=evaluator.name, model=model, judgements=judgements, usd=usd))
    return found
