"""Anchors: answers whose scores are known. A judge judges some of them again in the course of every run, between the
answers that it judges anyway, so that its drift can be told from that of the system."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evalflows.engine.prepare import Prepared
from evalflows.engine.results import EvaluationResult
from evalflows.engine.running import EvaluatorFactory, RunnableEvaluator
from evalflows.engine.spec_evaluators import PreparedEvaluator
from evalflows.engine.views import evaluator_inputs, example_view
from evalflows.evaluators.views import RunView, offer_pair
from evalflows.llm.ledger import Ledger
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import AnchorsSpec, JudgeSpec
from evalflows.specs.files import located
from evalflows.specs.frozen import dataclass
from evalflows.specs.values import is_blank
from evalflows.store.attachments import FilesBeside
from evalflows.store.file_formats import read_rows, stem
from evalflows.store.labels import parse_value
from evalflows.store.records import ExampleRow, OutputRow, SentinelRow, derived_id, from_json, now, to_json
from evalflows.store.snapshots import Examples, freeze, load_snapshot, to_examples
from evalflows.store.store import Store

ANSWER = "anchor"
"""The field of an example's metadata that has the answer of an anchor, with what is known of it."""

AT_LEAST = 30
"""Anchors that are judged in a run, unless the spec has another number."""

PAIR_VALUES = {"first": 1.0, "a": 1.0, "left": 1.0, "second": 0.0, "b": 0.0, "right": 0.0, "tie": 0.5}
"""The known score of a pair of answers: that of the one shown first."""

AnyPrepared = TypeVar("AnyPrepared", bound=Prepared[Any])

SNAPSHOT = "snap-"


class Stretch(NamedTuple):
    """Some subjects of a job in the order in which they are judged."""

    run_id: str  # of the start: the run group, the comparison or the batch
    start: int
    stop: int
    total: int
    at_least: int | None = AT_LEAST  # anchors among all, unless the spec has another number; None: one, whatever it has
    begins_elsewhere: str | None = None  # what the first anchor is drawn by; None: it is the same for all


class Due(NamedTuple):
    """An anchor that is judged before the subject with this number of a chunk."""

    place: int
    anchors: "Anchors"
    number: int  # of the anchor


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """The anchors of one judge of a job."""

    judge: RunnableEvaluator  # whose answers do not come from earlier runs
    spec: AnchorsSpec
    examples: Examples
    of_pairs: bool

    def due(self, among: Stretch) -> Iterator[Due]:
        """Yield the anchors to judge among subjects, evenly spread over all of the job.

        They come in one order. Every run begins at its first anchor, so that two runs can be compared anchor by anchor;
        each batch of production, which has few, begins elsewhere, so that all are judged equally often.
        """
        ids, n_anchors = self.examples.ids, len(self.examples)
        in_order = sorted(range(n_anchors), key=lambda number: _hash(self.spec.seed, ids[number]))
        count = n_due(self.spec, n_anchors, among.total, among.at_least)
        first = 0 if among.begins_elsewhere is None else _hash(among.begins_elsewhere) % n_anchors
        for turn in range(count):
            number = in_order[(first + turn) % n_anchors]
            place = (2 * turn + 1) * among.total // (2 * count)
            if among.start <= place < among.stop:
                yield Due(place - among.start, self, number)

    def arguments(self, example: ExampleRow, known_as: str) -> dict[str, Any]:
        """Return what the judge is asked about an anchor; `known_as` is the id of its judgement."""
        answer = _answer_of(example)
        example = replace(example, metadata=None)  # what is known of it is not shown
        if self.of_pairs:
            view = example_view(example)
            shown = [
                RunView(id=f"{known_as}-{side}", inputs=view.inputs, outputs=outputs)
                for side, outputs in enumerate(answer["outputs"])
            ]
            return offer_pair(view, *shown)
        output = OutputRow(
            run_id=known_as,
            experiment_id="",
            example_id=example.example_id,
            repetition=0,
            outputs=_json(answer["outputs"]),
            steps=_json(answer.get("steps")),
            status="ok",
        )
        metadata = _json(answer.get("metadata"))
        return evaluator_inputs(self.judge.requested, replace(example, metadata=metadata), output, ())

    def rows(
        self, example: ExampleRow, results: Sequence[EvaluationResult], *, identity: str, owner: str, run_id: str
    ) -> Iterator[SentinelRow]:
        """Yield a row for each metric of which the score is known."""
        known = _answer_of(example)["known"]
        of_metric = known if isinstance(known, Mapping) else {self.judge.bound.name: known}
        for result in results:
            name = result.metric if result.metric in of_metric else self.judge.bound.name
            wanted = of_metric.get(name) if len(results) == 1 or result.metric in of_metric else None
            if wanted is None or result.turn is not None:
                continue
            value, target = _value(result, wanted, of_pairs=self.of_pairs)
            yield SentinelRow(
                sentinel_id=derived_id(identity, result.metric, self.judge.version),
                experiment_id=owner,
                run_id=run_id,
                metric=result.metric,
                evaluator=self.judge.bound.name,
                evaluator_version=self.judge.version,
                snapshot_id=example.snapshot_id,
                example_id=example.example_id,
                known=target,
                value=value,
                status=result.status,
                error_kind=result.error_kind,
                judge_model=result.judge_model,
                calls=result.usage.calls,
                cost_usd=result.usage.cost_usd,
                judged_at=now(),
            )


def n_due(spec: AnchorsSpec, n_anchors: int, n_subjects: int, at_least: int | None) -> int:
    """Return how many anchors are judged among so many subjects, each at most once."""
    least = 1 if at_least is None else spec.at_least or at_least
    return min(n_anchors, max(least, math.ceil(spec.share * n_subjects)))


def anchors_of(
    store: Store, prepared: Prepared[Any], factory: EvaluatorFactory, judges: Sequence[RunnableEvaluator], run_id: str
) -> list[Anchors]:
    """Return the anchors of the judges of a job.

    What a judge says about an anchor is never taken from an earlier run; `run_id` is that of the calls that it may take
    up, if the run is resumed. Of a cascade the last tier, which decides the hard cases, judges anchors.
    """
    found = []
    for evaluator, runnable in zip(prepared.evaluators, judges, strict=True):
        if (spec := evaluator.spec.anchors) is None:
            continue
        anew = replace(factory, ledger=Ledger(store, run_id, fresh=True))
        judge = anew.judge(evaluator.tiers[-1] if evaluator.tiers else evaluator, evaluator.name)
        judge = replace(judge, breaker=runnable.breaker, version=runnable.version)
        of_pairs = isinstance(prepared.spec, ComparisonSpec)
        found.append(Anchors(judge=judge, spec=spec, examples=load_snapshot(store, spec.dataset), of_pairs=of_pairs))
    return found


def with_frozen_anchors(store: Store, prepared: AnyPrepared) -> AnyPrepared:
    """Return a prepared spec whose anchors are snapshots. Raise InputError for a file that has none."""
    if not any(evaluator.spec.anchors for evaluator in (*prepared.evaluators, *prepared.pairwise)):
        return prepared
    evaluators, pairwise = ([_frozen(store, e) for e in judges] for judges in (prepared.evaluators, prepared.pairwise))
    changes: dict[str, Any] = {"evaluators": [evaluator.spec for evaluator in evaluators]}
    if pairwise:
        judges = [evaluator.spec for evaluator in pairwise]
        changes["compare"] = prepared.spec.compare.model_copy(update={"evaluators": judges})
    return replace(prepared, spec=prepared.spec.model_copy(update=changes), evaluators=evaluators, pairwise=pairwise)


def read_anchors(store: Store, spec: AnchorsSpec) -> Examples:
    """Return anchors as examples. Raise InputError, with the row, for one without an answer or a known score."""
    if spec.dataset.startswith(SNAPSHOT):
        examples = load_snapshot(store, spec.dataset)
        if ANSWER not in (from_json(examples[0].metadata) or {}):
            raise InputError(f"anchors {spec.dataset}: got other examples, wanted a snapshot of anchors")
        return examples
    if not Path(located(spec.dataset)).suffix:
        raise InputError(f"anchors: got {spec.dataset!r}, wanted a file of rows, or the id of a snapshot of anchors")
    rows = ((number, _row(row, f"{spec.dataset}:{number}")) for number, row in read_rows(spec.dataset))
    return to_examples(rows, spec.dataset, FilesBeside(located(spec.dataset).parent))


def _frozen(store: Store, evaluator: PreparedEvaluator[Any]) -> PreparedEvaluator[Any]:
    judge: JudgeSpec = evaluator.spec
    if judge.anchors is None:
        return evaluator
    examples, of_pairs = read_anchors(store, judge.anchors), evaluator.scope == "pair"
    for example in examples:
        if isinstance(_answer_of(example)["outputs"], list) != of_pairs:
            got, wanted = ("one answer", "a list of two") if of_pairs else ("a list", "one answer")
            raise InputError(
                f"anchors of {evaluator.name!r}: {example.example_id}: outputs: got {got}, wanted {wanted}"
            )
    if judge.anchors.dataset.startswith(SNAPSHOT):
        return evaluator
    name, source = f"{stem(located(judge.anchors.dataset))} (anchors)", judge.anchors.dataset
    identity = freeze(store, examples, name=name, source=source)
    anchors = judge.anchors.model_copy(update={"dataset": identity})
    return replace(evaluator, spec=judge.model_copy(update={"anchors": anchors}))


def _row(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the row of an example that has an anchor in its metadata. Raise InputError if it is none."""
    known = next((row[name] for name in ("known", "label", "score") if not is_blank(row.get(name))), None)
    outputs = next((row[name] for name in ("outputs", "output", "answer") if row.get(name) is not None), None)
    if known is None or outputs is None:
        lacks = "outputs" if outputs is None else "known"
        raise InputError(f"{where}: got {', '.join(row)}, wanted {lacks}: an anchor is an answer whose score is known")
    of_pair = isinstance(outputs, list)
    whole = outputs if of_pair else [outputs]
    answers = [answer if isinstance(answer, Mapping) else {"output": answer} for answer in whole]
    answer = {
        "outputs": answers if of_pair else answers[0],
        "known": {name: _known(score, of_pair=of_pair) for name, score in known.items()}
        if isinstance(known, Mapping)
        else _known(known, of_pair=of_pair),
        **{name: row[name] for name in ("steps", "metadata") if row.get(name) is not None},
    }
    example = {name: row[name] for name in ("id", "inputs", "input", "split", "attachments") if name in row}
    reference = next((row[n] for n in ("reference_outputs", "expected_output", "reference") if n in row), None)
    return {**example, "reference_outputs": reference, "metadata": {ANSWER: answer}}


def _known(score: Any, *, of_pair: bool) -> float | str:
    """Return a known score as a number, or a label; of a pair the score of the answer shown first."""
    if of_pair and isinstance(score, str) and score.strip().lower() in PAIR_VALUES:
        return PAIR_VALUES[score.strip().lower()]
    parsed = parse_value(score)
    return parsed.value if parsed.value is not None else str(parsed.label)


def _value(result: EvaluationResult, known: float | str, *, of_pairs: bool) -> tuple[float | None, float]:
    """Return the score that a judge gave, and that it should have given; of labels, whether it is the right one."""
    if isinstance(known, str):
        return (None if result.label is None else float(result.label == known)), 1.0
    if of_pairs:
        return PAIR_VALUES.get(result.winner or ""), known
    return result.value, known


def _answer_of(example: ExampleRow) -> dict[str, Any]:
    answer: dict[str, Any] = from_json(example.metadata)[ANSWER]
    return answer


def _json(value: Any) -> str | None:
    return None if value is None else to_json(value)


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8])
