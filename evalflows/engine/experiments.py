"""Experiments as jobs: their examples and target, and answers as subjects of judging.

The experiments of one run share a budget, a ledger, and the workers that answer.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple, Protocol, TypeVar

from evalflows.engine import running
from evalflows.engine.anchors import Stretch, anchors_of
from evalflows.engine.chunks import ExampleChunk, Rounds, n_chunks
from evalflows.engine.job import Drawn, Job, Loaded
from evalflows.engine.may_call_models import target_may_call_unrecorded
from evalflows.engine.order import in_running_order
from evalflows.engine.prepare import PreparedExperiment
from evalflows.engine.quick_processes import is_quick
from evalflows.engine.results import Columns, EvaluationResult, failed_result, run_scores
from evalflows.engine.run_context import RunContext, SharedByTargets
from evalflows.engine.spec_evaluators import connections_of
from evalflows.engine.spec_targets import make_target, target_version
from evalflows.engine.views import evaluator_inputs
from evalflows.engine.workers import Workers
from evalflows.llm.breaker import Breaker
from evalflows.llm.calls import Endpoint
from evalflows.specs.connections import ConnectionSpec
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.target import ChatTarget, HttpTarget, PythonTarget, TargetSpec, asked
from evalflows.store.described import to_described
from evalflows.store.records import ExampleRow, ExperimentRow, JudgementRow, OutputRow
from evalflows.store.row_specs import experiment_spec
from evalflows.store.schemas import to_rows
from evalflows.store.snapshots import Examples, load_snapshot, size_of
from evalflows.store.store import Store
from evalflows.targets import Target

OVERHEAD = 2000
"""Bytes of the objects of a run, besides its texts."""
FIRST_ALIKE = 10
"""Answers of an application that stop it if they are the first, and all failed in the same way."""

Context = RunContext[PreparedExperiment]


class WithAnswer(Protocol):
    """An example and what a system answered."""

    @property
    def example(self) -> ExampleRow: ...

    @property
    def output(self) -> OutputRow: ...


class Answered(NamedTuple):
    """An example with its answer."""

    example: ExampleRow
    output: OutputRow


Answer = TypeVar("Answer", bound=WithAnswer)


class JudgesAnswers(Job[Answer]):
    """A job that judges answers, of an experiment or of production."""

    def size_of(self, subject: Answer) -> int:
        return size_of(subject.example) + size_of_answer(subject.output.outputs, subject.output.steps)

    def id_of(self, subject: Answer) -> str:
        return subject.output.run_id

    def owner_of(self, subject: Answer) -> str:
        return subject.output.experiment_id

    def settled(self, evaluator: running.RunnableEvaluator, subject: Answer) -> list[EvaluationResult]:
        """Return the result of a run without an answer: an error, at no cost."""
        output = subject.output
        if output.status == "ok":
            return []
        error = f"no output to judge: {output.error or output.status}"
        result = failed_result(evaluator.bound.name, "no_output", error)
        return [result._replace(status="not_attempted") if output.status == "not_attempted" else result]

    def arguments(self, requested: frozenset[str], subject: Answer, before: Sequence[JudgementRow]) -> dict[str, Any]:
        return evaluator_inputs(requested, subject.example, subject.output, before)


def size_of_answer(outputs: str | None, steps: str | None) -> int:
    """Return about how many bytes a run takes in memory, without its example."""
    return len(outputs or "") + len(steps or "") + OVERHEAD


@dataclass(frozen=True, kw_only=True)
class Experiment(JudgesAnswers[Answered]):
    """What the chunks of one experiment share."""

    called = "answers"

    row: ExperimentRow
    spec: ExperimentSpec
    examples: Examples  # in running order
    target_spec: TargetSpec
    target: Target
    makes_one_call: bool  # whether each answer is one call of a model
    target_breaker: Breaker
    connections: Sequence[ConnectionSpec] = ()  # whose prices count for the target's own clients
    target_may_call: bool  # whether its code may call models without being recorded
    summary_evaluators: Sequence[running.RunnableEvaluator]
    answering: Workers  # of all experiments of the run group
    answering_on: Sequence[Endpoint]  # endpoints of the target
    is_quick: bool  # whether its answers are looked up and judged by rules, in one pass and on this machine

    @property
    def n_chunks(self) -> int:
        return n_chunks(self.row)

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return [*self.answering_on, *self.judging_on]

    async def open_connections(self) -> None:
        """Open the connections over which the target is asked, once for a run in this process."""
        count, run = min(self.answering.width, self.row.n_examples), self.row.run_group
        for endpoint in self.answering_on:
            await endpoint.client.open_connections(count, run)
        if isinstance(inner := asked(self.target_spec), HttpTarget):
            from evalflows.llm.post import open_connections  # late: only these targets need its HTTP client

            await open_connections(inner, count, run)

    def check_code(self, *, in_cluster: bool = True) -> None:
        row, here = self.row, target_version(self.target_spec, self.spec.connections)
        check_code(row.experiment_id, f"target {row.target!r}", row.target_version, here, in_cluster=in_cluster)
        described = to_described(self.run.prepared.described)
        check_code(row.experiment_id, "evaluators", row.evaluators, described, in_cluster=in_cluster)

    def stretch(self, chunk: ExampleChunk) -> Stretch:
        row, before = self.row, chunk.repetition * self.row.n_examples
        total = row.n_examples * row.repetitions
        return Stretch(row.run_group, before + chunk.start, before + chunk.stop, total)

    def load(self, chunk: ExampleChunk) -> Loaded[Answered]:
        before: list[JudgementRow] = self.store.read("judgements", chunk.experiment_id, [chunk.part_name])
        return Loaded(self._answered(chunk), chunk.n_items, before)

    def _answered(self, chunk: ExampleChunk) -> Iterator[Answered]:
        """Yield the answers of a chunk that were made, with their examples, as they are read."""
        ids = self.examples.ids[chunk.start : chunk.stop]
        numbers = dict(zip(ids, range(chunk.start, chunk.stop), strict=True))
        for data in self.store.scan("outputs", chunk.experiment_id, [chunk.part_name]):
            outputs: list[OutputRow] = to_rows("outputs", data)
            made = [row for row in outputs if row.repetition == chunk.repetition and row.example_id in numbers]
            examples = self.examples.rows([numbers[row.example_id] for row in made])
            yield from starmap(Answered, zip(examples, made, strict=True))

    def sampled(self, evaluator: running.RunnableEvaluator, subjects: Sequence[Answered], numbers: list[int]) -> Drawn:
        if evaluator.sample is None:
            return numbers, []
        drawn = [number for number in numbers if subjects[number].example.example_id in evaluator.sample.drawn]
        return drawn, [*{*numbers} - {*drawn}]

    def columns(
        self, evaluator: running.RunnableEvaluator, subjects: Sequence[Answered], results: Sequence[EvaluationResult]
    ) -> Columns:
        sample, outputs = evaluator.sample, [subject.output for subject in subjects]
        return run_scores(
            outputs,
            results,
            evaluator=evaluator.bound.name,
            version=evaluator.version,
            declared_version=evaluator.spec.version,
            sampling_rates=None if sample is None else [sample.rates[output.example_id] for output in outputs],
        )


def check_code(owner: str, what: str, of_run: str, here: str, *, in_cluster: bool = True) -> None:
    """Raise InputError if the version of something differs here from the run's."""
    if of_run != here:
        process = socket.gethostname() if in_cluster else f"process {os.getpid()} of this machine"
        remedy = (
            "the same files and packages; restart the processes of the cluster after a change"
            if in_cluster
            else "the same files; start the run again after a change, or with task_runner: threads"
        )
        raise InputError(f"{process}: {what} of {owner}: got code other than the run's, wanted {remedy}")


def experiment_of(run: Context, experiment_id: str) -> Experiment:
    """Return a running experiment, made on first use in this process."""
    return run.job(experiment_id, partial(_made, run, experiment_id))


def experiments_in(run: Context, rounds: Rounds) -> list[Experiment]:
    """Return the experiments of some rounds, in the order of their chunks."""
    return [experiment_of(run, chunk.experiment_id) for chunk in rounds.chunks]


def _first_alike(store: Store, experiment_id: str, target: TargetSpec) -> int:
    """Return how many first answers that fail alike stop the target; 0 for a chat target, and for a resumption: whoever
    asks again wants to know how the rest does."""
    if not isinstance(asked(target), PythonTarget | HttpTarget):
        return 0
    has_some = store.query("select 1 from source.outputs where experiment_id = ? limit 1", [experiment_id])
    return 0 if has_some else FIRST_ALIKE


def _made(run: Context, experiment_id: str) -> Experiment:
    store = run.store
    row: ExperimentRow = store.read("experiments", experiment_id)[0]
    prepared = run.bound(lambda: experiment_spec(row))
    spec, looks_up = prepared.spec, is_quick(prepared)
    are_made = not looks_up or bool(prepared.summary_evaluators)
    ledger = run.ledger(experiment_id, are_made=are_made)
    budget = run.budget(row)
    factory = running.EvaluatorFactory(spec, ledger, budget, run.calls, partial(run.batches, row))
    examples = in_running_order(row, load_snapshot(store, row.snapshot_id))
    target = next(target for target in spec.targets if target.name == row.target)
    mode = target.mode if isinstance(target, ChatTarget) else "direct"
    models = {name: factory.complete(name, mode=mode) for name, _ in target.connections}
    evaluators = [factory.evaluator(evaluator, examples) for evaluator in prepared.evaluators]
    summaries = [factory.evaluator(evaluator, examples).directly() for evaluator in prepared.summary_evaluators]
    return Experiment(
        run=run,
        row=row,
        examples=examples,
        target_spec=target,
        target=make_target(target, models.__getitem__, examples, store),
        makes_one_call=isinstance(target, ChatTarget),
        target_breaker=factory.breaker(first=_first_alike(store, experiment_id, target)),
        connections=factory.connections,
        target_may_call=target_may_call_unrecorded(target),
        spec=spec,
        evaluators=evaluators,
        summary_evaluators=summaries,
        answering=_answering(run.shared, spec),
        judging=running.judging_workers(spec, connections_of(prepared.evaluators)),
        answering_on=[model.endpoint for model in models.values()],
        judging_on=running.endpoints_of([*evaluators, *summaries]),
        budget=budget,
        ledger=ledger,
        anchors=anchors_of(store, prepared, factory, evaluators, experiment_id) if target == spec.targets[0] else (),
        is_quick=looks_up and not spec.task_runner.is_elsewhere,
    )


def _answering(shared: SharedByTargets, spec: ExperimentSpec) -> Workers:
    """Return the workers of the run: as many as keep each connection full, and some per other target."""
    if shared.answering is None:
        chats = {name for target in spec.targets for name, _ in target.connections}
        others = sum(not target.connections for target in spec.targets)
        width = sum(running.width_of(name, spec) for name in chats) + others * running.MIN_WORKERS
        shared.answering = Workers(spec.max_concurrency or max(running.MIN_WORKERS, width))
    return shared.answering
