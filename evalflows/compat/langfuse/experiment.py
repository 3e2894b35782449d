"""Langfuse's experiments on top of `evalflows.evaluate`."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langfuse.api import default_run_name
from evalflows.compat.langfuse.evaluations import (
    DatasetItem,
    Evaluation,
    ExperimentItemResult,
    NoInputError,
    as_evaluators,
    as_row,
    as_run_evaluator,
    as_task,
    dataset_item,
    evaluations_of,
    item_of,
)
from evalflows.compat.refusal import refusing
from evalflows.evaluators.foreign import evaluator_name
from evalflows.evaluators.views import unwrapped, with_attributes
from evalflows.llm import loop
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import IncompleteError, InputError, describe
from evalflows.specs.escaping import print_note
from evalflows.specs.grouping import grouped
from evalflows.store.records import from_json, now
from evalflows.store.snapshots import current_snapshot, load_snapshot
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows import ExperimentResult as Stored
    from evalflows import ItemOutcome

__all__ = ["Evaluation", "ExperimentItemResult", "ExperimentResult"]

LocalExperimentItem = Mapping[str, Any]
ExperimentItem = LocalExperimentItem | DatasetItem
ExperimentData = Sequence[ExperimentItem]
TaskFunction = EvaluatorFunction = RunEvaluatorFunction = Callable[..., Any]
"""Langfuse's names of the types of a program's data and functions."""

ONE_RUN = "each call is an experiment of its own; `evalflows resume` continues an interrupted one"


__getattr__ = ABSENT.of_module(__name__)


@dataclass(slots=True, kw_only=True)
class ExperimentResult:
    """A finished experiment: the items that the task answered, in the dataset's order."""

    name: str
    run_name: str
    description: str | None = None
    item_results: list[ExperimentItemResult] = field(default_factory=list)
    run_evaluations: list[Evaluation] = field(default_factory=list)
    experiment_id: str
    experiment_url: str | None = None  # there is no web page
    failed_item_ids: list[str] = field(default_factory=list)  # ours: of items that the task did not answer
    item_ids: list[str] = field(default_factory=list)  # ours: of item_results, in their order
    dataset_run_id: str | None = None  # the experiment's id; None for local data

    @property
    def dataset_run_url(self) -> str | None:
        return self.experiment_url

    @property
    def item_evaluations(self) -> dict[str, list[Evaluation]]:
        """The evaluations of each item, by the item's id; composites are among them."""
        results = zip(self.item_ids, self.item_results, strict=True)
        return {identity: result.evaluations for identity, result in results}

    def format(self, *, include_item_results: bool = False) -> str:
        """Return the result as text: means, scores of the run, and with `include_item_results` every item."""
        items = (
            [_shown(number, result) for number, result in enumerate(self.item_results, 1)]
            if include_item_results
            else []
        )
        counted = f"{len(self.item_results)} items"
        if self.failed_item_ids:
            counted += f", {len(self.failed_item_ids)} not answered"
        lines = [*items, f"experiment: {self.name}", f"run: {self.run_name}"]
        lines += [self.description] if self.description else []
        lines += [counted, *self._means()]
        lines += [f"of the run: {_score(evaluation)}" for evaluation in self.run_evaluations]
        return "\n".join(lines)

    def _means(self) -> Iterable[str]:
        """Return a line for each name of an evaluation, with its mean and how many items have it."""
        evaluations = (evaluation for result in self.item_results for evaluation in result.evaluations)
        values = grouped((evaluation.name, evaluation.value) for evaluation in evaluations)
        for name, given in values.items():
            numbers = [float(value) for value in given if isinstance(value, int | float)]
            mean = f"{sum(numbers) / len(numbers):.3f}, " if numbers else ""
            yield f"  {name}: {mean}{len(given)} of {len(self.item_results)} items"


@refusing(experiment_id=ONE_RUN, _dataset_version="get_dataset takes the version")
def run_experiment(
    *,
    name: str,
    run_name: str | None = None,
    description: str | None = None,
    data: Any,
    task: Any,
    evaluators: Sequence[Any] = (),
    composite_evaluator: Any = None,
    run_evaluators: Sequence[Any] = (),
    max_concurrency: int = 50,
    metadata: Mapping[str, Any] | None = None,
    experiment_id: str | None = None,
    _dataset_version: datetime | None = None,
    _snapshot: str | None = None,
) -> ExperimentResult:
    """Run a task on items, evaluate every output, and return what came of it.

    Args:
        name: The experiment's name.
        run_name: Its name in the store; by default `name`.
        description: Its purpose.
        data: Mappings with `input`, `expected_output` and `metadata`, or items of a dataset.
        task: A function of `item`, sync or async. What it returns is kept as JSON, also dataclasses and pydantic
            models.
        evaluators: Functions of input, output, expected_output and metadata.
        composite_evaluator: A function of the same and of `evaluations`; it is not called for an item that an
            evaluator failed to judge.
        run_evaluators: Functions of `item_results`, the items that the task answered.
        max_concurrency: Maximum number of items answered, or outputs evaluated, at once.
        metadata: Metadata to store with the experiment.

    Items without an input are left out, as a note says; without any item, only the run evaluators are called, and
    nothing is stored. If the task raises for every item, the result has none. Raise InputError, before anything is
    called, for arguments that cannot be used, and IncompleteError if a model could not be reached; what is done is
    stored even then.
    """
    import evalflows  # loads Prefect, which takes seconds

    dataset, examples = as_data(data, _snapshot)
    composites = [] if composite_evaluator is None else [composite_evaluator]
    target, judges = as_task(task, dataset), as_evaluators(evaluators, composites, names_stand=False)
    of_run = [as_run_evaluator(evaluator, dataset) for evaluator in run_evaluators]
    if not examples.rows and examples.snapshot is None:
        return _empty(name, run_name, description, run_evaluators)
    try:
        result = evalflows.evaluate(
            target,
            examples,
            judges,
            summary_evaluators=of_run,
            experiment_prefix=run_name or name,
            description=description,
            metadata={"experiment_name": name, **(metadata or {})} if run_name else metadata,
            max_concurrency=max_concurrency,
        )
    except IncompleteError as error:
        if len(error.experiments) != 1:
            raise
        result = evalflows.ExperimentResult(error.experiments[0])
        if any(item.output.error_kind != "raised" for item in result):
            raise
        print_note(str(error))
    return _result(result, name=name, run_name=run_name, description=description, dataset=dataset)


def _empty(name: str, run_name: str | None, description: str | None, run_evaluators: Sequence[Any]) -> ExperimentResult:
    """Return the result of an experiment without items: what the run evaluators make of none."""
    found = []
    for evaluator in run_evaluators:
        try:
            returned = evaluator(item_results=[])
            made = loop.run(_awaited(returned)) if inspect.isawaitable(returned) else returned
        except Exception as error:  # whatever the user's function raises
            print_note(f"{evaluator_name(evaluator)}: {describe(error)}")
            continue
        listed = made if isinstance(made, list) else [] if made is None else [made]
        found += [Evaluation(**each) if isinstance(each, Mapping) else each for each in listed]
    print_note(f"experiment {name!r}: got no items, so nothing is stored")
    run = run_name or f"{name} - {now().isoformat()}"
    return ExperimentResult(name=name, run_name=run, description=description, run_evaluations=found, experiment_id="")


async def _awaited(returned: Any) -> Any:
    return await returned


def create_evaluator_from_autoevals(autoevals_evaluator: Any) -> Any:
    """Return the scorer itself: it can be an evaluator here."""
    return autoevals_evaluator


def as_data(data: Any, snapshot: str | None = None) -> tuple[str | None, DatasetSpec]:
    """Return the name of the dataset that items come from, if it is one, and the data as a spec.

    All items of a snapshot, by default the dataset's current one, are that snapshot. Raise InputError for anything but
    items.
    """
    if isinstance(data, str | Mapping) or not isinstance(data, Iterable):
        raise InputError(f"data: got {type(data).__name__}, wanted a list of items, such as get_dataset(…).items")
    items = list(data)
    rows = []
    for number, item in enumerate(items, 1):
        try:
            rows.append(as_row(item, f"data: item {number}"))
        except NoInputError as error:
            print_note(f"{error}: it is left out")
    names = {item.dataset_name if isinstance(item, DatasetItem) else None for item in items}
    name = names.pop() if len(names) == 1 else None
    if name is not None and (whole := snapshot or current_snapshot(Store(), name)):
        is_whole = items == [dataset_item(row, name) for row in load_snapshot(Store(), whole)]
        return name, DatasetSpec(name=name, snapshot=whole) if is_whole else DatasetSpec(rows=rows)
    return name, DatasetSpec(rows=rows)


def _result(
    result: "Stored", *, name: str, run_name: str | None, description: str | None, dataset: str | None
) -> ExperimentResult:
    (row,) = Store().read("experiments", result.experiment_id)
    answered = [item for item in result if item.output.status == "ok"]
    return ExperimentResult(
        name=name,
        run_name=run_name or default_run_name(row),
        description=description,
        item_results=[_item_result(item, dataset) for item in answered],
        item_ids=[item.row.example_id for item in answered],
        failed_item_ids=[item.row.example_id for item in result if item.output.status != "ok"],
        run_evaluations=evaluations_of(result.summary),
        experiment_id=result.experiment_id,
        dataset_run_id=None if dataset is None else result.experiment_id,
    )


def _item_result(item: "ItemOutcome", dataset: str | None) -> ExperimentItemResult:
    return ExperimentItemResult(
        item=item_of(item.example, dataset),
        output=with_attributes(unwrapped(from_json(item.output.outputs), "output")),
        evaluations=evaluations_of(item.scores),
        trace_id=item.output.run_id,
        experiment_id=item.output.experiment_id,
    )


def _shown(number: int, result: ExperimentItemResult) -> str:
    lines = [f"item {number}:", f"  input: {result.item.input}"]
    if result.item.expected_output is not None:
        lines.append(f"  expected: {result.item.expected_output}")
    lines.append(f"  output: {result.output}")
    return "\n".join([*lines, *(f"  {_score(evaluation)}" for evaluation in result.evaluations)])


def _score(evaluation: Evaluation) -> str:
    is_number = isinstance(evaluation.value, int | float) and not isinstance(evaluation.value, bool)
    value = f"{evaluation.value:.3f}" if is_number else str(evaluation.value)
    return f"{evaluation.name}: {value}" + (f" ({evaluation.comment})" if evaluation.comment else "")
