"""Keep a gate's decision: the same evidence gives the same decision id, stored once."""

from dataclasses import replace
from datetime import datetime

from evalflows.analysis.gates.gate_evaluation import GateEvaluation
from evalflows.store.parquet import Store
from evalflows.store.records import DecisionRow, after


def keep_decision(store: Store, evaluation: GateEvaluation, flow_run: str | None = None) -> DecisionRow:
    """Publish a decision with its verdicts, and return its row. Repeating a decision only updates its time.

    Args:
        store: The store.
        evaluation: The gate on a candidate and its baseline.
        flow_run: Id of the flow run that decides; None outside flows.
    """
    row = evaluation.decision(flow_run)
    decided_at = after(_newest_decision(store, row))
    if before := store.read("decisions", row.decision_id):
        row = replace(before[0], recorded_at=decided_at)
    else:
        store.publish("verdicts", row.decision_id, list(evaluation.verdicts(row.decision_id)))
        row = replace(row, decided_at=decided_at, recorded_at=decided_at)
    store.publish("decisions", row.decision_id, [row])
    return row


def _newest_decision(store: Store, row: DecisionRow) -> datetime | None:
    """Return the time of the newest decision of the gate, or on the candidate; None if there is none."""
    query = "select max(recorded_at) from source.decisions where gate = ? or candidate_experiment_id = ?"
    ((newest,),) = store.query(query, [row.gate, row.candidate_experiment_id])
    return newest  # type: ignore[no-any-return]
