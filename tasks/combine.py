"""What is made of all answers and judgements of an experiment: composites, and what judges them all at once."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from prefect import task
from prefect.cache_policies import NO_CACHE

from evaluators.call import offer_experiment
from evaluators.composite import Part, combined
from evaluators.subject import ItemResult
from llm import loop
from specs.metric import MEASURES, CompositeSpec
from specs.reference import load
from store.records import ExperimentRow, OutputRow, ScoreRow, derived_id, to_json
from store.spool import Spool
from tasks.experiment import Experiment, ReadyEvaluator, experiment
from tasks.judge import judged, run_score
from tasks.provider_limit import within_provider_limits
from tasks.resolve import composite_version
from tasks.subject import evaluations_view, example_view, run_view

OfRun = Mapping[str, Sequence[ScoreRow]]


@task(cache_policy=NO_CACHE, persist_result=False)
def combine_scores(rows: list[ExperimentRow], *, whole: bool = True) -> None:
    """Add composites to the experiments that are not finished yet, and the scores of what judges them as a `whole`.

    They are made from whatever is there, anew each time: an experiment that is gone on with gets newer ones.
    """
    for row in rows:
        if row.state == "running":
            ready = experiment(row.experiment_id)
            _combine(ready, ready.summary_evaluators if whole else ())


def _combine(ready: Experiment, judges: Sequence[ReadyEvaluator]) -> None:
    if not ready.spec.composites and not judges:
        return
    identity = ready.row.experiment_id
    outputs: list[OutputRow] = ready.store.read("outputs", identity)
    of_run: defaultdict[str, list[ScoreRow]] = defaultdict(list)
    for score in ready.store.read("scores", identity):
        of_run[score.run_id or ""].append(score)
    names = {composite.name for composite in ready.spec.composites}
    for run, scores in of_run.items():  # of an earlier attempt
        of_run[run] = [score for score in scores if score.evaluator not in names]
    composites = [score for spec in ready.spec.composites for score in _composites(ready, spec, outputs, of_run)]
    ready.store.append("scores", identity, "composites", composites)
    for score in composites:
        of_run[score.run_id or ""].append(score)
    with (
        within_provider_limits(ready.judging_on if judges else [], 1, 1),
        Spool(ready.store, identity, "summary") as spool,
    ):
        for evaluator in judges:
            work = partial(_summarise, ready, evaluator, spool)
            results = _results(ready, outputs, of_run)
            # A plain one waits for its calls, which it may not do on the loop that makes them.
            loop.run(ready.judging.run(work, [results], is_async=evaluator.bound.is_async))


def _composites(
    ready: Experiment, spec: CompositeSpec, outputs: Iterable[OutputRow], of_run: OfRun
) -> Iterator[ScoreRow]:
    """One composite of every run. Its version is found once: that reads source code."""
    version = composite_version(spec, ready.spec)
    declared = {metric: ready.spec.direction(metric) for metric in spec.metrics}
    own = load(spec.function) if spec.function else None
    givers = _givers(of_run)
    for output in outputs:
        scores = [score for score in of_run[output.run_id] if score.turn is None]
        parts = _measured(output) | {
            metric: _part(metric, scores, givers.get(metric, ())) for metric in spec.metrics - {*MEASURES}
        }
        found = combined(spec, parts, declared, own)
        yield run_score(
            output,
            evaluator=spec.name,
            version=version,
            metric=spec.name,
            value=found.value,
            data_type=None if found.value is None else "NUMERIC",
            status=found.status,
            error=found.error,
            comment=found.comment,
            sampling_rate=_rate(spec, scores),
            cost_usd=0.0,
            metadata=to_json({"parts": found.parts}),
        )


def _givers(of_run: OfRun) -> dict[str, list[str]]:
    """Which evaluators give a metric."""
    found: dict[str, dict[str, None]] = {}
    for score in chain.from_iterable(of_run.values()):
        if score.turn is None and (score.status == "scored" or score.metric == score.evaluator):
            found.setdefault(score.metric, {})[score.evaluator] = None
    return {metric: list(names) for metric, names in found.items()}


def _part(metric: str, scores: Sequence[ScoreRow], givers: Sequence[str]) -> Part:
    """A metric of a run. Where its evaluator failed, was not drawn or did not apply, that stands under its own name."""
    if len(givers) > 1:
        return Part(value=None, status="failed", error=f"{' and '.join(sorted(givers))} give it both")
    given = [score for score in scores if score.metric == metric]
    instead = [s for s in scores if s.evaluator in givers and s.metric == s.evaluator and s.status != "scored"]
    if found := [*given, *instead]:
        return Part(value=found[0].value, status=found[0].status, error=found[0].error)
    of_it = any(score.evaluator in givers for score in scores)
    return Part(value=None, status="not_applicable" if of_it else "failed", error="no evaluator gave it")


def _rate(spec: CompositeSpec, scores: Iterable[ScoreRow]) -> float | None:
    """The share of the runs that have it: smaller samples are parts of larger ones."""
    rates = [
        score.sampling_rate for score in scores if score.metric in spec.metrics and score.sampling_rate is not None
    ]
    return min(rates, default=None)


def _measured(output: OutputRow) -> dict[str, Part]:
    """The measures of a run, as the view `measures` has them."""
    tokens = None if output.tokens_in is None or output.tokens_out is None else output.tokens_in + output.tokens_out
    values = {"latency": output.latency_s, "cost": output.cost_usd, "tokens": tokens, "length": output.length}
    return {metric: _measure(output, value) for metric, value in values.items()}


def _measure(output: OutputRow, value: float | None) -> Part:
    if output.status != "ok":
        return Part(value=None, status=output.status, error=output.error)
    return Part(value=value, status="scored" if value is not None else "not_applicable")


async def _summarise(ready: Experiment, evaluator: ReadyEvaluator, spool: Spool, results: list[ItemResult]) -> None:
    """Judge all answers at once: rows whose subject is the experiment."""
    identity = ready.row.experiment_id
    offered = offer_experiment(results)
    for fields in await judged(evaluator, offered, spool=spool, experiment_id=identity, subject_id=identity):
        row = ScoreRow(
            score_id=derived_id(identity, None, fields["metric"], evaluator.version),
            subject_kind="experiment",
            subject_id=identity,
            experiment_id=identity,
            evaluator=evaluator.bound.name,
            evaluator_version=evaluator.version,
            declared_version=evaluator.spec.version,
            **fields,
        )
        spool.add("scores", row)


def _results(ready: Experiment, outputs: Iterable[OutputRow], of_run: OfRun) -> list[ItemResult]:
    """Every run as a run-level evaluator sees it, in the dataset's order, each repetition after the other."""
    found = {(output.repetition, output.example_id): output for output in outputs}
    results = []
    for repetition in range(ready.row.repetitions):
        for example in sorted(ready.examples, key=lambda example: example.position):
            if output := found.get((repetition, example.example_id)):
                seen = example_view(example)
                run = run_view(output, seen.inputs)
                scores = evaluations_view(of_run[output.run_id])
                results.append(ItemResult(item=seen, output=run.outputs, evaluations=scores, run=run))
    return results
