"""Keep a gate's decision: the same evidence gives the same decision id, stored once."""

from dataclasses import replace
from datetime import datetime

from evalflows.analysis.gates.gate_evaluation import GateEvaluation
from evalflows.store.evidence import evidence_on
from evalflows.store.manifests import Evidence, Written
from evalflows.store.parquet import Store
from evalflows.store.records import DecisionRow, after
from evalflows.store.schemas import to_arrow


def keep_decision(store: Store, evaluation: GateEvaluation, flow_run: str | None = None) -> DecisionRow:
    """Publish a decision with its verdicts, and return its row. Repeating a decision only updates its time.

    Args:
        store: The store.
        evaluation: The gate on a candidate and its baseline.
        flow_run: Id of the flow run that decides; None outside flows.

    Raise StorageError for evidence that no run wrote.
    """
    evidence = evidence_of(store, evaluation)
    row = evaluation.decision(flow_run)
    decided_at = after(_newest_decision(store, row))
    tables: dict[str, list[object]] = {}
    if before := store.read("decisions", row.decision_id):
        row = replace(before[0], recorded_at=decided_at)
    else:
        tables["verdicts"] = [*evaluation.verdicts(row.decision_id)]
        row = replace(row, decided_at=decided_at, recorded_at=decided_at)
    tables["decisions"] = [row]
    contents = [(table, [to_arrow(table, rows)]) for table, rows in tables.items()]
    store.publish_all(row.decision_id, contents, Written(evidence=evidence, flow_run=flow_run))
    return row


def evidence_of(store: Store, evaluation: GateEvaluation) -> Evidence:
    """Return what an evaluation rests on. Raise StorageError for a file of it that no run wrote."""
    return evidence_on(store, evaluation.evidence)


def _newest_decision(store: Store, row: DecisionRow) -> datetime | None:
    """Return the time of the newest decision of the gate, or on the candidate; None if there is none."""
    query = "select max(recorded_at) from source.decisions where gate = ? or candidate_experiment_id = ?"
    ((newest,),) = store.query(query, [row.gate, row.candidate_experiment_id])
    return newest  # type: ignore[no-any-return]
