"""pydantic-evals: a dataset of cases, evaluated in memory; the report is not written anywhere."""

from dataclasses import dataclass
from typing import Any

from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Evaluator, EvaluatorContext
from work import IN_FLIGHT, contains, exact, main


@dataclass
class IsExact(Evaluator[Any, str, Any]):
    def evaluate(self, ctx: EvaluatorContext[Any, str, Any]) -> bool:
        return exact(ctx.output, ctx.expected_output or "")


@dataclass
class HasIt(Evaluator[Any, str, Any]):
    def evaluate(self, ctx: EvaluatorContext[Any, str, Any]) -> bool:
        return contains(ctx.output, ctx.expected_output or "")


def evaluated(rows: list[dict[str, str]], task: Any, evaluators: list[Any]) -> int:
    cases = [Case(name=str(n), inputs=row, expected_output=row["reference"]) for n, row in enumerate(rows)]
    dataset: Dataset[Any, str, Any] = Dataset(name="peers", cases=cases, evaluators=evaluators)
    report = dataset.evaluate_sync(task, max_concurrency=IN_FLIGHT, progress=False)
    return sum(len(case.assertions) for case in report.cases)


def rules(rows: list[dict[str, str]]) -> int:
    async def recorded(inputs: dict[str, str]) -> str:
        return inputs["said"]

    return evaluated(rows, recorded, [IsExact(), HasIt()])


def calls(rows: list[dict[str, str]], ask: Any) -> int:
    async def task(inputs: dict[str, str]) -> str:
        return str(await ask(inputs["question"]))

    return evaluated(rows, task, [HasIt()])


main(rules, calls)
