"""May it be released? Each gate of a spec, held against what is in the store."""

from collections.abc import Iterator
from dataclasses import replace

from prefect import task
from prefect.cache_policies import NO_CACHE

from specs.experiment import ExperimentSpec
from store.parquet import Store
from store.records import ExperimentRow, now
from tasks.baselines import baseline_row
from tasks.case import Case
from tasks.combine import combine_scores


@task(cache_policy=NO_CACHE, persist_result=False)
def decide(spec: ExperimentSpec, rows: list[ExperimentRow]) -> list[str]:
    """Keep the decision of every gate on every candidate of a run group. Returns their ids.

    The same evidence gives the same decision, which is kept once; an earlier one on other evidence stays beside it.
    """
    store = Store()
    return [keep(store, case) for case in _cases(store, spec, rows)]


def _cases(store: Store, spec: ExperimentSpec, started: list[ExperimentRow]) -> Iterator[Case]:
    rows = [store.read("experiments", row.experiment_id)[0] for row in started]  # as they are now
    for gate in spec.gates:
        base = baseline_row(store, spec, gate, rows)
        for name in spec.candidates(gate):
            candidate = next(row for row in rows if row.target == name)
            yield Case(store=store, spec=spec, gate=gate, candidate=candidate, baseline=base)


def keep(store: Store, case: Case) -> str:
    """Publish a decision and the verdicts that it rests on; one that is made again is recorded anew. Returns its id."""
    row = case.decision
    if before := store.read("decisions", row.decision_id):
        store.publish("decisions", row.decision_id, [replace(before[0], recorded_at=now())])
        return row.decision_id
    store.publish("verdicts", row.decision_id, list(case.verdicts(row.decision_id)))
    store.publish("decisions", row.decision_id, [row])
    return row.decision_id


@task(cache_policy=NO_CACHE, persist_result=False)
def have_decided(spec: ExperimentSpec, rows: list[ExperimentRow]) -> str | None:
    """Why nothing more needs to run, where gates look after each batch and all of them have decided; else None."""
    store = Store()
    combine_scores.fn(rows, whole=False)
    cases = list(_cases(store, spec, rows))
    if any(case.looks is None or case.conclusion == "NOT ENOUGH EVIDENCE" for case in cases):
        return None
    after = max(case.looks.after[-1] for case in cases if case.looks is not None)
    return f"stopped after {after} of {rows[0].n_examples} examples: the gates had decided"
