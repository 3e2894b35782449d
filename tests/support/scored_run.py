"""Rows of one experiment, added as a run would."""

from collections.abc import Callable
from typing import Any

from evalflows.store.parquet import Store
from evalflows.store.queries.progress import complete_scores
from evalflows.store.records import ScoreRow, derived_id

Make = Callable[..., Any]
OWNER, OTHER = "exp-1", "exp-2"


class Run:
    """Rows of one experiment, added as a run would."""

    def __init__(self, store: Store, make: Make) -> None:
        self.store, self.make = store, make

    def output(self, run_id: str, **fields: Any) -> None:
        row = self.make("outputs", **{"run_id": run_id, "experiment_id": OWNER} | fields)
        self.store.append("outputs", row.experiment_id, "p", [row])

    def score(self, run_id: str, evaluator: str, metric: str | None = None, **fields: Any) -> ScoreRow:
        metric = metric or evaluator
        of = {"subject_id": run_id, "run_id": run_id, "experiment_id": OWNER}
        judged = {"evaluator": evaluator, "evaluator_version": "v1", "metric": metric}
        score_id = derived_id(run_id, fields.get("turn"), metric, "v1")
        row: ScoreRow = self.make("scores", score_id=score_id, **of | judged | fields)
        self.store.append("scores", row.experiment_id or "", "p", [row])
        return row

    def call(self, call_id: str, **fields: Any) -> None:
        row = self.make("calls", **{"call_id": call_id, "experiment_id": OWNER} | fields)
        self.store.append("calls", row.experiment_id, "p", [row])

    def complete(self) -> dict[tuple[str, str], ScoreRow]:
        """The sealed scores by run and metric."""
        complete_scores(self.store, OWNER)
        self.store.seal(OWNER, ("scores",))
        rows = self.store.read("scores", OWNER)
        found = {(row.subject_id, row.metric): row for row in rows}
        assert len(found) == len(rows)
        return found
