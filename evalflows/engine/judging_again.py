"""Judging again: specs by which other judges, or the same ones today, judge stored answers, pairs of answers, or items
of production. Their metadata says what was judged before.

Of a run group, the specs of experiments have the targets again, each replaying the answers of its experiment with their
latencies and costs. They have no gates: what other judges would do to a gate is computed, and decides nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from evalflows.engine.may_call_models import evaluator_may_call_unrecorded
from evalflows.engine.prepare import fields_with_texts
from evalflows.engine.spec_evaluators import connections_of, prepare_evaluator
from evalflows.evaluators.binding import Scope
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.connections import Connections, ConnectionSpec
from evalflows.specs.errors import InputError, NotFoundError, first_problem
from evalflows.specs.evaluator import SAMPLE, EvaluatorSpec, JudgeSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import load_text, read_text
from evalflows.specs.target import RecordedTarget
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.lookup import find_comparison, find_experiments, unique_name
from evalflows.store.queries.two_judges import JUDGED_AGAIN
from evalflows.store.records import ComparisonSetRow, ExperimentRow, derived_id, new_id, now
from evalflows.store.row_specs import comparison_spec, experiment_spec
from evalflows.store.store import Store

SUFFIX = "judged-again"

Spec = TypeVar("Spec", EvaluatorSpec, JudgeSpec)

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
    connections: Mapping[str, ConnectionSpec]


def load_judges(path: str | Path) -> GivenJudges:
    """Read judges from a file (YAML): an evaluator, a list of them, or a spec with `evaluators`, and `connections`.

    Raise InputError, in one line, if there are none.
    """
    where, text, wanted = str(path), read_text(path), "an evaluator (use: …), a list of them, or a spec with evaluators"
    is_list = re.match(r"(\s|#.*\n)*-\s", text) is not None
    fields = load_text(f"evaluators:\n{text}" if is_list else text, where, wanted=wanted)
    given = fields.get("evaluators", [fields] if "use" in fields else [])
    if not (evaluators := given if isinstance(given, list) else [given]):
        raise InputError(f"{where}: got {', '.join(map(str, fields)) or 'nothing'}, wanted {wanted}")
    return GivenJudges(evaluators=evaluators, connections=_parsed(Connections, fields.get("connections", {}), where))


def _parsed(kind: Any, content: object, where: str) -> Any:
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        raise InputError(first_problem(error, where)) from error


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
    targets = [
        RecordedTarget(
            kind="recorded",
            name=row.target if names.count(row.target) == 1 else unique_name(row.target, row.experiment_id),
            experiment=row.experiment_id,
        )
        for row in rows
    ]
    base = spec.baseline or spec.targets[0].name
    is_one_run = len({row.run_group for row in rows}) == 1
    return spec.model_copy(
        update={
            "name": f"{spec.name if len(rows) > 1 else rows[0].name}-{SUFFIX}",
            "description": f"Answers of {', '.join(row.name for row in rows)}, judged again",
            "targets": targets,
            "baseline": base if is_one_run and base in names else targets[0].name,
            "evaluators": standing_in(spec.evaluators, _own(judges, list[EvaluatorSpec]), "item"),
            "gates": [],
            "compare": None,
            **_of_all(spec, judges, [row.experiment_id for row in rows]),
        }
    )


def comparison_again(reference: str, judges: GivenJudges | None = None) -> ComparisonSpec:
    """Return the spec by which judges judge the pairs of a comparison again, in the same order of presentation.

    Raise InputError for recorded votes, and if a judge stands in for none.
    """
    store = Store()
    row: ComparisonSetRow = store.read("comparison_sets", find_comparison(store, reference))[0]
    spec = comparison_spec(row)
    if spec.votes is not None:
        raise InputError(f"judge: comparison {row.name!r}: got recorded votes, wanted a comparison by judges")
    return spec.model_copy(
        update={
            "name": f"{row.name}-{SUFFIX}",
            "description": f"Pairs of {row.name}, judged again",
            "evaluators": standing_in(spec.evaluators, _own(judges, list[JudgeSpec]), "pair"),
            **_of_all(spec, judges, [row.comparison_id]),
        }
    )


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
    spec = TraceEvaluationSpec.model_validate_json(found[0][0])
    window = {"evaluation": evaluation, "since": since.isoformat(), "until": (until or now()).isoformat()}
    again = spec.model_copy(
        update={
            "name": f"{evaluation}-{SUFFIX}-{derived_id(new_id('again'))[:8]}",
            "description": f"What {evaluation} judges since {since:%Y-%m-%d %H:%M}, judged again",
            "evaluators": standing_in(spec.evaluators, _own(judges, list[EvaluatorSpec]), "item"),
            "watch": [],
            "max_items": None,
            **{name: value for name, value in _of_all(spec, judges, window).items() if name != "run_key"},
        }
    )
    for (text,) in store.query(_UNFINISHED, [evaluation]):
        begun = TraceEvaluationSpec.model_validate_json(text)
        ends = ("since", "until") if until else ("since",)
        is_same_window = all(begun.metadata[JUDGED_AGAIN][end] == window[end] for end in ends)
        if is_same_window and begun.evaluators == fields_with_texts(again)["evaluators"]:
            return again.model_copy(update={"name": begun.name, "metadata": begun.metadata})
    return again


def judged_before(metadata: Mapping[str, Any] | None) -> list[str] | dict[str, str] | None:
    """Return what was judged before: ids, or a window of a trace evaluation; None if nothing was judged again."""
    return (metadata or {}).get(JUDGED_AGAIN)


def replays(spec: ExperimentSpec) -> bool:
    """Return whether a spec judges stored answers again, so that its final examples have been answered."""
    sources = [isinstance(target, RecordedTarget) and target.experiment is not None for target in spec.targets]
    return judged_before(spec.metadata) is not None and all(sources)


def _own(judges: GivenJudges | None, kind: Any) -> list[Any] | None:
    return None if judges is None else _parsed(kind, list(judges.evaluators), "--with")


def _of_all(spec: Any, judges: GivenJudges | None, before: object) -> dict[str, Any]:
    """Return the fields that all kinds of specs have."""
    return {
        "run_key": None,
        "metadata": {**spec.metadata, JUDGED_AGAIN: before},
        "connections": {**spec.connections, **(judges.connections if judges else {})},
        "use_cache": spec.use_cache and judges is not None,
    }


def standing_in(own: Sequence[Spec], given: Sequence[Spec] | None, scope: Scope) -> list[Spec]:
    """Return evaluators in which the given ones stand in for those of the same metric, on the same sample and with the
    same controls; None: as they are. A single one stands in for a single judge, whatever its name.

    Raise InputError for one that stands in for none.
    """
    if given is None:
        return list(own)
    names: list[str] = [evaluator.metric for evaluator in own]
    judges = [evaluator.metric for evaluator in own if _may_call_models(evaluator, scope)] or names
    if len(given) == len(judges) == 1 and given[0].metric not in names:
        given = [given[0].model_copy(update={"name": judges[0]})]
    by_name = {evaluator.metric: evaluator for evaluator in given}
    if unknown := by_name.keys() - {*names}:
        raise InputError(
            f"--with: got the judge {min(unknown)!r}, wanted the name of the one that it stands in for: "
            f"{', '.join(judges)} (name: …)"
        )
    return [_with_settings_of(evaluator, by_name.get(evaluator.metric, evaluator)) for evaluator in own]


def _with_settings_of(own: Spec, given: Spec) -> Spec:
    kept = {"controls": own.controls} if given.controls is None else {}
    if isinstance(own, EvaluatorSpec) and isinstance(given, EvaluatorSpec) and not given.is_sampled:
        kept |= {name: getattr(own, name) for name in SAMPLE}
    return given.model_copy(update=kept)


def _may_call_models(evaluator: JudgeSpec, scope: Scope) -> bool:
    prepared = prepare_evaluator(evaluator, scope)
    return bool(connections_of([prepared])) or any(map(evaluator_may_call_unrecorded, prepared.all))
