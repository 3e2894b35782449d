"""Langfuse's client on top of the store that EVALFLOWS_STORE names, with its datasets and stored traces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from evalflows.compat.langfuse import experiment
from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langfuse.api import Api
from evalflows.compat.langfuse.batch_evaluation import BatchEvaluationResult, BatchEvaluationResumeToken
from evalflows.compat.langfuse.evaluations import DatasetItem, as_evaluators, as_mapper, as_row, dataset_item
from evalflows.compat.langfuse.experiment import ExperimentResult
from evalflows.compat.langfuse.observations import observation, update_current
from evalflows.compat.langsmith import datasets
from evalflows.compat.langsmith.schemas import Dataset as Named
from evalflows.compat.refusal import refusing, refusing_unknown
from evalflows.specs.errors import InputError
from evalflows.store.snapshots import current_snapshot, load_snapshot, to_examples
from evalflows.store.store import Store

Scope = Literal["traces", "observations", "sessions"]

_UNCHANGED = "everything is stored unchanged; leave sensitive data out of inputs and outputs"
_NO_TRACING = "nothing is traced here: keep Langfuse's SDK for it, and send its spans to `evalflows receive`"
_NO_SCHEMA = "check a dataset with expectations: docs/reference/specs.md"
_NO_SOURCE = "name the trace in the item's metadata"


@ABSENT.of_objects()
@refusing_unknown
@dataclass(slots=True, kw_only=True)
class DatasetClient:
    """A dataset, with its items as they were when it was fetched."""

    id: str
    name: str
    description: str | None = None
    metadata: Any = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    version: datetime | None = None
    items: list[DatasetItem] = field(default_factory=list)
    snapshot_id: str | None = None  # ours: of the items

    @refusing(experiment_id=experiment.ONE_RUN)
    def run_experiment(
        self,
        *,
        name: str,
        run_name: str | None = None,
        description: str | None = None,
        task: Any,
        evaluators: Sequence[Any] = (),
        composite_evaluator: Any = None,
        run_evaluators: Sequence[Any] = (),
        max_concurrency: int = 50,
        metadata: Mapping[str, Any] | None = None,
        experiment_id: str | None = None,
    ) -> ExperimentResult:
        """Run a task on all items of the dataset: see `Langfuse.run_experiment`."""
        return experiment.run_experiment(
            name=name,
            run_name=run_name,
            description=description,
            data=self.items,
            task=task,
            evaluators=evaluators,
            composite_evaluator=composite_evaluator,
            run_evaluators=run_evaluators,
            max_concurrency=max_concurrency,
            metadata=metadata,
            _snapshot=self.snapshot_id,
        )


def _client(found: Named) -> DatasetClient:
    return DatasetClient(
        id=found.id,
        name=found.name,
        description=found.description,
        metadata=found.metadata,
        created_at=found.created_at,
        updated_at=found.modified_at,
    )


@ABSENT.of_objects()
@refusing_unknown
class Langfuse:
    """Datasets, experiments and evaluations of production. Stateless: every method reads the store's current content.

    Keys, addresses and options of the transport are accepted and ignored: there is no server, and nothing is sent.
    """

    @refusing(
        mask=_UNCHANGED,
        mask_otel_spans=_UNCHANGED,
        should_export_span=_NO_TRACING,
        tracer_provider=_NO_TRACING,
        id_generator=_NO_TRACING,
        span_exporter=_NO_TRACING,
    )
    def __init__(
        self,
        *,
        public_key: str | None = None,
        secret_key: str | None = None,
        base_url: str | None = None,
        host: str | None = None,
        timeout: int | None = None,
        httpx_client: Any = None,
        debug: bool = False,
        tracing_enabled: bool | None = True,
        flush_at: int | None = None,
        flush_interval: float | None = None,
        environment: str | None = None,
        release: str | None = None,
        media_upload_thread_count: int | None = None,
        sample_rate: float | None = None,
        mask: Any = None,
        mask_otel_spans: Any = None,
        should_export_span: Any = None,
        additional_headers: dict[str, str] | None = None,
        tracer_provider: Any = None,
        id_generator: Any = None,
        span_exporter: Any = None,
        otel_compression: str | None = None,
    ) -> None:
        self.api = Api()

    @refusing(_add_observation_scores_to_trace="a score is about one item; judge traces with scope='traces'")
    def run_batched_evaluation(
        self,
        *,
        scope: Scope | None = None,
        mapper: Any = None,
        filter: str | None = None,  # noqa: A002 Langfuse's name
        fetch_batch_size: int = 50,
        fields: str | None = "core,basic,io,metadata",
        fetch_trace_fields: str | None = None,
        max_items: int | None = None,
        max_retries: int = 3,
        evaluators: Sequence[Any],
        composite_evaluator: Any = None,
        composite_evaluators: Sequence[Any] = (),
        max_concurrency: int = 5,
        metadata: Mapping[str, Any] | None = None,
        _add_observation_scores_to_trace: bool = False,
        resume_from: BatchEvaluationResumeToken | None = None,
        verbose: bool = False,
    ) -> BatchEvaluationResult:
        """Judge stored traces or observations, those that began last first.

        Args:
            scope: "traces" or "observations", as in Langfuse before version 5: items have parsed inputs and outputs.
                Without it they are observations with inputs and outputs as text, as in version 5.
            mapper: A function of an item that returns EvaluatorInputs, sync or async; without one, evaluators get the
                item's own input, output and metadata.
            filter: JSON: an object such as {"tags": ["production"]}, or a list of conditions.
            fetch_batch_size: Items read at once.
            fields: Has no effect: an item has all its fields.
            fetch_trace_fields: Has no effect either.
            max_items: Maximum number of items; the result's `resume_token` judges the others. 0 judges none.
            max_retries: Number of retries of items whose judge could not be reached.
            evaluators: Functions of input, output, expected_output and metadata.
            composite_evaluator: A function of the same and of `evaluations`; it is not called for an item that an
                evaluator failed to judge.
            composite_evaluators: Several of these, or mappings with `name` and `weights`.
            max_concurrency: Maximum number of items judged concurrently.
            metadata: Metadata to store with the evaluation.
            resume_from: The token of an earlier result, whose rest is judged.
            verbose: Show progress on standard error.

        An item that the same evaluator has judged through the same mapper is not judged again; its scores are in the
        result. Raise InputError, before anything is called, for arguments that cannot be used.
        """
        import evalflows  # loads Prefect, which takes seconds

        composites = [*composite_evaluators, *([] if composite_evaluator is None else [composite_evaluator])]
        judges = as_evaluators(evaluators, composites, names_stand=True)
        n_judges = len(evaluators)
        result = evalflows.run_batched_evaluation(
            scope=scope or "observations",
            mapper=as_mapper(mapper, raw=scope is None),
            evaluators=judges[:n_judges],
            composite_evaluators=judges[n_judges:],
            filter="false" if max_items == 0 else filter,
            fetch_batch_size=fetch_batch_size,
            max_items=max_items or None,
            max_retries=max_retries,
            max_concurrency=max_concurrency,
            metadata=metadata,
            resume_from=resume_from,
            verbose=verbose,
        )
        return BatchEvaluationResult(result.batch_id, result.composites)

    run_experiment = staticmethod(experiment.run_experiment)

    def get_dataset(
        self, name: str, *, fetch_items_page_size: int | None = 50, version: datetime | None = None
    ) -> DatasetClient:
        """Return a dataset with its items, or with those of the version of a time.

        Raise InputError if it does not exist. `fetch_items_page_size` has no effect: all items are read at once.
        """
        store = Store()
        found = datasets.find_dataset(store, name, None)
        client = _client(found)
        client.version = version
        client.snapshot_id = datasets.version_at(store, found, version).snapshot_id
        client.items = [dataset_item(row, name) for row in load_snapshot(store, client.snapshot_id)]
        return client

    @refusing(input_schema=_NO_SCHEMA, expected_output_schema=_NO_SCHEMA)
    def create_dataset(
        self,
        *,
        name: str,
        description: str | None = None,
        metadata: Any = None,
        input_schema: Any = None,
        expected_output_schema: Any = None,
    ) -> DatasetClient:
        """Return the dataset of this name, which is created if there is none.

        Raise InputError if it exists with another description or other metadata, which cannot be changed.
        """
        store = Store()
        if current_snapshot(store, name) is None:
            return _client(datasets.create(store, name, description, metadata))
        found = datasets.find_dataset(store, name, None)
        for kind, given in (("description", description), ("metadata", metadata)):
            if given is not None and given != (kept := getattr(found, kind)):
                raise InputError(
                    f"create_dataset: {name!r} exists with the {kind} {kept!r:.60}, wanted the same, or none"
                )
        return _client(found)

    @refusing(
        source_trace_id=_NO_SOURCE, source_observation_id=_NO_SOURCE, status="a version has the items that are used"
    )
    def create_dataset_item(
        self,
        *,
        dataset_name: str,
        input: Any = None,  # noqa: A002 Langfuse's name
        expected_output: Any = None,
        metadata: Any = None,
        source_trace_id: str | None = None,
        source_observation_id: str | None = None,
        status: str | None = None,
        id: str | None = None,  # noqa: A002 Langfuse's name
    ) -> DatasetItem:
        """Add an item to a dataset, as a new version of it; an item with the id of another replaces it.

        Without an id, an item with the content of another is the same item. Raise InputError if the dataset does not
        exist, or the item cannot be stored.
        """
        store = Store()
        found = datasets.find_dataset(store, dataset_name, None)
        item = {"input": input, "expected_output": expected_output, "metadata": metadata, "id": id}
        row = as_row(item, "create_dataset_item")
        (example,) = to_examples([(1, row)], "create_dataset_item")
        datasets.put(store, found, [row | {"id": example.example_id}])
        return dataset_item(example, dataset_name)

    start_as_current_observation = staticmethod(observation)

    def update_current_span(
        self,
        *,
        name: str | None = None,
        input: Any = None,  # noqa: A002 Langfuse's name
        output: Any = None,
        metadata: Any = None,
        version: str | None = None,
        level: str | None = None,
        status_message: str | None = None,
    ) -> None:
        """Add to what is recorded of the innermost observation; its name stays."""
        given: dict[str, Any] = {"version": version, "level": level, "status_message": status_message}
        update_current(input=input, output=output, metadata=metadata, **given)

    def update_current_trace(self, *, metadata: Any = None, **fields: Any) -> None:
        """Add metadata to the innermost observation. A run has its own name, input, output and tags."""
        update_current(metadata=metadata)

    def update_current_generation(
        self,
        *,
        name: str | None = None,
        input: Any = None,  # noqa: A002 Langfuse's name
        output: Any = None,
        metadata: Any = None,
        version: str | None = None,
        level: str | None = None,
        status_message: str | None = None,
        completion_start_time: datetime | None = None,
        model: str | None = None,
        model_parameters: Mapping[str, Any] | None = None,
        usage_details: Mapping[str, int] | None = None,
        cost_details: Mapping[str, float] | None = None,
        prompt: Any = None,
    ) -> None:
        """Add to what is recorded of the innermost observation."""
        self.update_current_span(
            input=input, output=output, metadata=metadata, version=version, level=level, status_message=status_message
        )
        update_current(
            model=model, model_parameters=model_parameters, usage_details=usage_details, cost_details=cost_details
        )

    def flush(self) -> None:
        """Do nothing: everything recorded is already on disk."""

    def shutdown(self) -> None:
        """Do nothing: no connection is open."""

    def auth_check(self) -> bool:
        """Return true: no key is needed."""
        return True


def get_client(*, public_key: str | None = None) -> Langfuse:
    """Return a client; they are all the same."""
    return Langfuse()
