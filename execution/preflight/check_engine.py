"""Check the engine that runs the chunks: it is installed, and its processes can import what they call."""

from collections.abc import Iterable, Iterator

from evalflows.execution.prepared_evaluator import PreparedEvaluator
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import FallbackSpec
from evalflows.specs.target import PythonTarget, TargetSpec
from evalflows.specs.task_runner import TaskRunnerSpec, check_task_runner


def check_engine(
    runner: TaskRunnerSpec,
    targets: Iterable[TargetSpec],
    evaluators: Iterable[PreparedEvaluator[FallbackSpec]],
) -> None:
    """Raise InputError for an engine that is not installed, and for a function that only this process has."""
    check_task_runner(runner)
    if not runner.imports_code:
        return
    for who, reference in _functions(targets, evaluators):
        if reference.startswith("live:"):
            raise InputError(
                f"{who}: got a function that only this process has; with task_runner {runner.kind} wanted "
                "'module:name', which its processes can import"
            )


def _functions(
    targets: Iterable[TargetSpec], evaluators: Iterable[PreparedEvaluator[FallbackSpec]]
) -> Iterator[tuple[str, str]]:
    """Yield the references to functions that chunks call, each with who calls it."""
    for target in targets:
        if isinstance(target, PythonTarget):
            yield f"target {target.name!r}", target.function
    for evaluator in evaluators:
        for judge in evaluator.all:
            yield f"evaluator {evaluator.name!r}", judge.spec.use
