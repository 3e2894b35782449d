"""What Prefect shows of a flow run: its progress, its name, and the message of its last state."""

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture
from prefect.states import Completed

from evalflows.engine.chunks import Rounds
from evalflows.engine.interrupts import raise_if_pressed
from evalflows.engine.revision import git_commit
from evalflows.engine.run_context import RunContext
from evalflows.engine.tally import Planned
from evalflows.reports.decisions import decisions_named
from evalflows.reports.names import versions_of
from evalflows.reports.progress import Progress
from evalflows.server_watch import report_if_possible
from evalflows.specs.errors import GateFailedError, IncompleteError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.records import ExperimentRow
from evalflows.store.row_specs import experiment_spec
from evalflows.store.store import Store
from evalflows.tasks.engines import ended_work, not_done

INTERVAL_S = 1.0

_GREEK = frozenset(
    {
        *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"),
        *("nu", "xi", "omicron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
    }
)

Result = TypeVar("Result")


def enter_stage(run: RunContext[Any], stage: str) -> None:
    """Tell the program that called the flow what the run does now."""
    _tell(run, Progress(stage=stage))


def _tell(run: RunContext[Any], progress: Progress) -> None:
    if run.caller.watch is not None:
        run.caller.watch(progress)


def planned_of(experiments: Sequence[ExperimentRow]) -> Planned:
    """Return the work planned for the experiments that are running."""
    running = [row for row in experiments if row.state == "running"]
    judges = len(experiment_spec(running[0]).evaluators) if running else 0
    runs = sum(row.n_examples * row.repetitions for row in running)
    owners = frozenset(row.experiment_id for row in running)
    return Planned(owners=owners, answers=runs, judgements=runs * judges, of_item=judges)


def wait_with_progress(run: RunContext[Any], steps: Sequence[PrefectFuture[Any]], planned: Planned) -> None:
    """Wait for all steps, and report progress meanwhile; to Prefect's UI only if it takes longer than INTERVAL_S."""
    if not planned.owners:
        return
    server = run.caller.server
    if server is not None:
        server.owners |= planned.owners
    _tell(run, _progress(run, planned))
    artifact, shown = None, 0.0
    while True:
        pending = not_done(steps, INTERVAL_S)
        raise_if_pressed()
        if server is not None:
            server.raise_if_lost()
        _count_ended(run, steps, planned)
        progress = _progress(run, planned)
        _tell(run, progress)
        percent = round(progress.percent if pending else 100.0, 1)
        with report_if_possible(server):
            if artifact is None and pending:
                artifact = create_progress_artifact(percent, key="progress", description="Answers and judgements")
            elif artifact is not None and percent != shown:
                update_progress_artifact(artifact_id=artifact, progress=percent)  # type: ignore[arg-type]
            shown = percent
        if not pending:
            return


def _count_ended(run: RunContext[Any], steps: Sequence[PrefectFuture[Any]], planned: Planned) -> None:
    """Count the chunks that have ended in other processes, whose items this one cannot count one by one."""
    tally = run.tally
    for work in ended_work(steps):
        for chunk in getattr(work, "chunks", ()):
            if chunk.dispatch is not None:
                run.calls.count_elsewhere(chunk.owner, chunk.dispatch.costs)
            if isinstance(work, Rounds):
                tally.begin(chunk, "answers", chunk.n_items)
            else:
                tally.begin(chunk, "judgements", chunk.n_items * planned.of_item)


def _progress(run: RunContext[Any], planned: Planned) -> Progress:
    tally, made = run.tally, run.calls.made
    failed, again_in_s = tally.waiting(planned.owners) or run.calls.waits()
    return Progress(
        stage=planned.stage,
        answers=tally.of(planned.owners, "answers"),
        judgements=tally.of(planned.owners, "judgements"),
        lost_answers=tally.lost_of(planned.owners, "answers"),
        lost_judgements=tally.lost_of(planned.owners, "judgements"),
        planned_answers=planned.answers,
        planned_judgements=planned.judgements,
        calls=sum(made[owner] for owner in planned.owners),
        cost_usd=run.calls.cost(planned.owners),
        failed=failed,
        again_in_s=again_in_s,
    )


def run_name() -> str:
    """Return the name of the flow run that starts now: the one that a person typed, else that of its spec, with the
    version that its experiments will have.

    Prefect and its UI give each run a random name, which is not kept: a word and an animal such as `brave-beetle`, or a
    Greek letter with a constellation such as `alpha3-cancri-ring`.
    """
    context = FlowRunContext.get()
    assert context is not None, "called by Prefect as a run starts"
    given = context.flow_run.name if context.flow_run and context.flow_run.deployment_id else ""
    spec = (context.parameters or {})["spec"]
    if not _is_random(given):
        return given
    name = spec.title if hasattr(spec, "title") else spec.name
    return " ".join(filter(None, (name, version_of(getattr(spec, "targets", [])))))


def version_of(targets: Sequence[Any]) -> str:
    """Return the version of a spec's targets as pages have it: the given one, if all have the same, else the git commit
    by tag or subject. Empty without either."""
    given = {getattr(target, "version", None) for target in targets}
    if len(given) != 1:
        return ""
    (version,) = given
    commit = None if version else git_commit()
    return " ".join(version.text for version in versions_of([("", version, commit)]).values())


def _is_random(name: str) -> bool:
    words = name.split("-")
    is_of_ui = words[0].rstrip("0123456789") in _GREEK and len(words) > 1
    return name == "" or is_of_ui or (len(words) == 2 and words[1] in _animals())


@cache
def _animals() -> set[str]:
    """Return the last words of the random names that Prefect makes."""
    from coolname.data import config  # Prefect's own dependency

    parts: Any = config  # of several types
    return {word for name in ("animal", "animal_breed", "animal_legendary") for word in parts[name]["words"]}


def is_of_deployment() -> bool:
    """Return whether the current flow run is one of a deployment, and not called by another flow."""
    context = FlowRunContext.get()
    return bool(context and context.flow_run and context.flow_run.deployment_id)


@task(cache_policy=NO_CACHE, persist_result=False)
def raise_if_failed(decisions: list[str], lacking: IncompleteError | None = None) -> None:
    """Raise GateFailedError if a gate decided FAIL; otherwise raise IncompleteError if the run is incomplete."""
    failed = [row for row in decisions_named(Store(), decisions) if row.conclusion == "FAIL"]
    if failed:
        raise GateFailedError("; ".join(row.sentence for row in failed), decisions)
    if lacking is not None:
        raise IncompleteError(str(lacking), lacking.experiments, decisions, whole=lacking.whole)


def fails_with_gate(spec: ExperimentSpec) -> bool:
    """Return whether this flow run fails if a gate decided FAIL: a run of a deployment does unless the spec says
    otherwise."""
    return is_of_deployment() and spec.gate_fails_run


def completed(result: Result, decisions: Sequence[str]) -> Result:
    """Return the last state of a flow run whose result this is, with what the gates decided as its message.

    Prefect returns the result, not the state, to who called the flow; so does this function's type.
    """
    rows = decisions_named(Store(), list(decisions))
    state: Any = Completed(message="; ".join(row.sentence for row in rows) or None, data=result)
    return state  # type: ignore[no-any-return]
