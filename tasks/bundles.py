"""Judges that share a call, tried alone: a sample of answers is judged both ways, before anything is decided."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.bundle_checks import (
    Saving,
    Scores,
    Tried,
    check_of_bundle,
    counted_all_the_same,
    earlier_check,
    scores_in,
    unchecked_bundle,
)
from evalflows.engine.chunks import ExampleChunk
from evalflows.engine.experiments import Answered, Experiment, experiment_of
from evalflows.engine.job import is_final
from evalflows.engine.judgement import judge_with
from evalflows.engine.prepare import PreparedExperiment
from evalflows.engine.results import EvaluationResult
from evalflows.engine.run_context import RunContext
from evalflows.engine.running import RunnableEvaluator
from evalflows.llm import loop
from evalflows.llm.calls import Completer
from evalflows.llm.prices import Tokens, price_of
from evalflows.specs.escaping import print_note
from evalflows.specs.protocols import Complete
from evalflows.store.records import (
    CheckRow,
    ExperimentRow,
    JudgementRow,
    bundles_batch,
    derived_id,
    now,
)
from evalflows.store.spool import Spool
from evalflows.tasks.limits import within_provider_limits

SECOND = 10**6
"""What is added to the number of a repeat in the second try alone: its calls are others than those of the first."""


class _Sampled(NamedTuple):
    """An answer, and what the judges of a bundle have said of it together, by name."""

    job: Experiment
    subject: Answered
    rows: dict[str, list[JudgementRow]]


@task(cache_policy=NO_CACHE, persist_result=False)
def check_bundles(run: RunContext[PreparedExperiment], rows: Sequence[ExperimentRow]) -> None:
    """Try the judges of each bundle alone on a sample of the answers, and publish what that says as checks.

    A judge whose version was tried in an earlier run is not tried again. The first running experiment pays for the
    calls. If none is running, the judges were tried before.
    """
    running = [row for row in rows if row.state == "running"]
    bundles = run.prepared.spec.bundles
    if not running or not bundles:
        return
    batch = bundles_batch(running[0].run_group)
    before: list[CheckRow] = run.store.read("checks", batch)
    done = [check for check in before if check.passed is not None]
    known = {check.subject_id for check in done}
    jobs = [experiment_of(run, row.experiment_id) for row in running]
    checks = list[CheckRow]()
    for name, members in bundles.items():
        judges = [judge for judge in jobs[0].evaluators if judge.bundle == name]
        unchecked = {member.metric for member in members if member.bundle_unchecked}
        names = {judge.bound.name for judge in judges}
        found = {judge: unchecked_bundle(batch, judge, sorted(names - {judge})) for judge in unchecked}
        if to_check := names - unchecked - known:
            earlier = ((judge.bound.name, earlier_check(run.store, judge.version)) for judge in judges)
            of_bundle = [_as_of(batch, judge, check) for judge, check in earlier if check is not None]
            if to_check - {check.subject_id for check in of_bundle}:
                size = max(member.bundle_sample for member in members)
                of_bundle = _checks(jobs, judges, size, batch, name)
            for check in of_bundle:
                is_counted = check.subject_id in unchecked
                found[check.subject_id] = counted_all_the_same(check) if is_counted else check
        checks += found.values()
    if checks:
        new = {check.check_id for check in checks}
        run.store.publish("checks", batch, [*(check for check in done if check.check_id not in new), *checks])


def _as_of(batch: str, judge: str, check: CheckRow) -> CheckRow:
    """Return the check of an earlier run as one of this run."""
    identity = derived_id(batch, judge)
    return replace(check, check_id=identity, batch_id=batch, subject_id=judge, recorded_at=now())


def _checks(
    jobs: Sequence[Experiment], judges: Sequence[RunnableEvaluator], size: int, batch: str, bundle: str
) -> list[CheckRow]:
    """Try the judges of a bundle alone, print what that says, and return a check of each."""
    job, sample = jobs[0], list[_Sampled]()
    for sampled in _sampled(jobs, judges):
        sample.append(sampled)
        if len(sample) == size:
            break
    owner, tried = job.row.experiment_id, defaultdict[str, list[Tried]](list)
    results = defaultdict[str, list[EvaluationResult]](list)  # of the first try
    errors = list[str]()
    alone = [replace(judge.directly(), fallback=None, caller=f"{judge.bound.name}: alone") for judge in judges]
    with (
        within_provider_limits(job.judging_on, 2 * len(alone) * len(sample), job.n_chunks),
        Spool(job.store, owner, f"bundle-{derived_id(*(judge.bound.name for judge in judges))}") as spool,
    ):

        async def judge_alone(one: tuple[RunnableEvaluator, _Sampled]) -> None:
            judge, sampled = one
            name, twice = judge.bound.name, list[Scores]()
            subject = derived_id("bundle", sampled.subject.output.run_id)
            for complete in (judge.complete, _again(judge.complete)):
                available = sampled.job.arguments(judge.requested, sampled.subject, ())
                made = await judge_with(
                    replace(judge, complete=complete), available, spool=spool, experiment_id=owner, subject_id=subject
                )
                errors.extend(result.error for result in made if result.error is not None)
                if not twice:
                    results[name] += made
                twice.append(scores_in(made))
            together = scores_in(sampled.rows[name])
            tried[name].append(Tried(together=together, alone=(twice[0], twice[1])))

        pairs = [(judge, sampled) for judge in alone for sampled in sample]
        loop.run(job.judging.run(judge_alone, pairs, is_async=True))
    saving = _saving(judges, sample, [result for made in results.values() for result in made])
    names = [judge.bound.name for judge in judges]
    widths = {
        metric: declared.range[1] - declared.range[0]
        for metric, declared in job.spec.metrics.items()
        if declared.range is not None
    }
    checks = [
        check_of_bundle(
            batch,
            judge.bound.name,
            judge.version,
            tried[judge.bound.name],
            widths,
            others=[name for name in names if name != judge.bound.name],
            saving=saving,
            error=next(iter(errors), None),
        )
        for judge in judges
    ]
    print_note(f"bundle {bundle!r}, tried on {len(sample)} answers: {saving.text}")
    for check in checks:
        print_note(f"{check.subject_id}: {check.message}")
    return checks


def _sampled(jobs: Sequence[Experiment], judges: Sequence[RunnableEvaluator]) -> Iterator[_Sampled]:
    """Yield answers that all judges of a bundle have judged, in an order that is drawn by the examples' ids: of each
    experiment in turn."""
    job, sample = jobs[0], judges[0].sample
    numbers = [number for number, identity in enumerate(job.examples.ids) if sample is None or identity in sample.drawn]
    numbers.sort(key=lambda number: hashlib.sha256(f"bundle {job.examples.ids[number]}".encode()).digest())
    names = {judge.bound.name for judge in judges}
    read: dict[tuple[str, int], dict[str, _Sampled]] = {}  # chunks that were read, by experiment and number
    for place, number in enumerate(numbers):
        job = jobs[place % len(jobs)]
        key = job.row.experiment_id, number // job.row.chunk_size
        if key not in read:
            read[key] = _judged_in(job, key[1], names)
        if (found := read[key].get(job.examples.ids[number])) is not None:
            yield found


def _judged_in(job: Experiment, chunk: int, names: Set[str]) -> dict[str, _Sampled]:
    """Return the answers of a chunk that judges of these names have all judged, by example."""
    start = chunk * job.row.chunk_size
    stop = min(start + job.row.chunk_size, job.row.n_examples)
    loaded = job.load(ExampleChunk(job.row.experiment_id, 0, start, stop))
    rows = defaultdict[str, defaultdict[str, list[JudgementRow]]](lambda: defaultdict(list))
    for row in loaded.before:
        if row.evaluator in names and is_final(row):
            rows[row.subject_id][row.evaluator].append(row)
    return {
        subject.example.example_id: _Sampled(job, subject, of_answer)
        for subject in loaded.subjects
        if subject.output.status == "ok" and (of_answer := rows[subject.output.run_id]).keys() == names
    }


def _again(complete: Complete | None) -> Complete | None:
    """Return `complete` whose calls are others than those of the first try."""
    if complete is None:
        return None

    async def again(*args: Any, repeat: int = 0, **parameters: Any) -> Any:
        return await complete(*args, repeat=repeat + SECOND, **parameters)

    return again


def _saving(
    judges: Sequence[RunnableEvaluator], sample: Sequence[_Sampled], alone: Sequence[EvaluationResult]
) -> Saving:
    """Return what the sample took together, and in the first try alone. What the ledger had counts too."""
    together = [row for sampled in sample for rows in sampled.rows.values() for row in rows]
    paid = sum(row.calls or 0 for row in together)
    of_ledger = sum(max(row.calls_cached or 0 for rows in each.rows.values() for row in rows) for each in sample)
    usages, usd, usd_alone, complete = [result.usage for result in alone], None, None, judges[0].complete
    if isinstance(complete, Completer) and complete.model is not None:
        price = price_of(complete.endpoint.connection, complete.model)
        if price is not None:
            usd = price.cost(_sum((row.tokens_in, row.tokens_out) for row in together))
            usd_alone = price.cost(_sum((usage.tokens_in, usage.tokens_out) for usage in usages))
    return Saving(
        calls=paid or of_ledger,
        calls_alone=sum((usage.calls or 0) + (usage.calls_cached or 0) for usage in usages),
        usd=usd,
        usd_alone=usd_alone,
    )


def _sum(pairs: Iterable[tuple[int | None, int | None]]) -> Tokens:
    known = [(into, out) for into, out in pairs if into is not None]
    return Tokens(sum(into for into, _ in known), None, sum(out or 0 for _, out in known)) if known else Tokens()
