"""The results of LangSmith's `evaluate`."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from evalflows.compat.langsmith.schemas import EvaluationResult, Example, Run
from evalflows.compat.langsmith.views import dataset_id, example_of, result_of, run_of
from evalflows.store.parquet import Store

if TYPE_CHECKING:
    import pandas as pd

    from evalflows import ExperimentResult


class EvaluationResults(TypedDict):
    """Several judgements."""

    results: list[EvaluationResult]


class ExperimentResultRow(TypedDict):
    """One run, its example and its judgements."""

    run: Run
    example: Example
    evaluation_results: EvaluationResults


class ExperimentResults:
    """A finished experiment: its rows in the dataset's order, one repetition after the other.

    `summary_results` has the scores of the whole experiment.
    """

    def __init__(self, result: "ExperimentResult") -> None:
        (row,) = Store().read("experiments", result.experiment_id)
        self.experiment_id: str = row.experiment_id
        self.experiment_name: str = row.name
        self.url: str | None = None  # there is no web page
        self.comparison_url: str | None = None
        self.summary_results: EvaluationResults = {"results": [result_of(score) for score in result.summary]}
        self._dataset = dataset_id(row.dataset_name)
        self._rows = [
            ExperimentResultRow(
                run=run_of(item.output, (example := example_of(item.example, self._dataset)).inputs),
                example=example,
                evaluation_results={"results": [result_of(s) for s in item.scores if s.status != "sampled_out"]},
            )
            for item in result
        ]

    def __repr__(self) -> str:
        return f"<ExperimentResults {self.experiment_name}>"

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ExperimentResultRow]:
        return iter(self._rows)

    async def __aiter__(self) -> AsyncIterator[ExperimentResultRow]:
        for row in self._rows:
            yield row

    def get_dataset_id(self) -> str | None:
        """Return the dataset's id; None if the examples were not from a named dataset."""
        return self._dataset

    def wait(self) -> None:
        """Do nothing: the experiment is finished."""

    def to_pandas(self, start: int | None = 0, end: int | None = None) -> "pd.DataFrame":
        """Return one row per run: inputs.*, outputs.*, error, reference.*, feedback.*, execution_time and ids."""
        import pandas as pd

        return pd.DataFrame([_flat(row) for row in self._rows[start:end]])


def _flat(row: ExperimentResultRow) -> dict[str, Any]:
    run, example = row["run"], row["example"]
    columns: dict[str, Any] = {f"inputs.{name}": value for name, value in example.inputs.items()}
    columns |= {f"outputs.{name}": value for name, value in (run.outputs or {}).items()} | {"error": run.error}
    columns |= {f"reference.{name}": value for name, value in (example.outputs or {}).items()}
    for result in row["evaluation_results"]["results"]:
        columns[f"feedback.{result.key}"] = result.score if result.score is not None else result.value
    return columns | {"execution_time": run.latency, "example_id": example.id, "id": run.id}
