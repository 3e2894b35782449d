"""The part of Langfuse's API that reads the store: traces and runs with their scores, and the runs of datasets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langfuse.evaluations import Item
from evalflows.compat.langsmith.conversion import dataset_id, run_key
from evalflows.compat.langsmith.datasets import find_dataset
from evalflows.compat.refusal import refusing, refusing_unknown
from evalflows.engine.items import items_of
from evalflows.evaluators.views import unwrapped
from evalflows.specs.errors import InputError
from evalflows.specs.moments import in_utc
from evalflows.store.queries.traces import LATEST, ItemKey, Window, condition, item_keys
from evalflows.store.records import ExperimentRow, from_json
from evalflows.store.store import Store
from evalflows.telemetry.views import TraceView

__all__ = ["ScoreDataType"]

_NEWEST_FIRST = Window(moment="started_at", until=LATEST, newest_first=True)

_RUN = """
select o.experiment_id, o.example_id, o.outputs, o.status, o.started_at, o.latency_s, o.tokens_in, o.tokens_out,
       o.cost_usd, e.inputs, e.metadata
from source.outputs o join source.experiments x using (experiment_id)
join source.examples e on e.snapshot_id = x.snapshot_id and e.example_id = o.example_id
where o.run_id = ?"""

_SCORES = """
select score_id, metric, value, label, data_type, coalesce(comment, error) from staging.scores
where subject_id = $1 and subject_kind in ('run', 'trace') and turn is null and status = 'scored'
order by recorded_at, metric"""


class ScoreDataType(StrEnum):
    """What a score's value is."""

    NUMERIC = "NUMERIC"
    BOOLEAN = "BOOLEAN"
    CATEGORICAL = "CATEGORICAL"
    TEXT = "TEXT"


__getattr__ = ABSENT.of_module(__name__)


@ABSENT.of_objects()
@dataclass(slots=True, kw_only=True)
class Score:
    """A score of a trace or of a run. A label is the `string_value`."""

    id: str
    trace_id: str
    name: str
    value: float | None
    string_value: str | None
    data_type: str
    comment: str | None


class Trace(Item):
    """A trace, or a run of an experiment, with its scores."""

    __slots__ = ()

    @property
    def scores(self) -> list[Score]:
        found = Store().query(_SCORES, [self.id])
        return [
            Score(
                id=identity,
                trace_id=self.id,
                name=name,
                value=value,
                string_value=label,
                data_type=kind or ("NUMERIC" if label is None else "CATEGORICAL"),
                comment=comment,
            )
            for identity, name, value, label, kind, comment in found
        ]


@ABSENT.of_objects()
@dataclass(slots=True, kw_only=True)
class Page:
    """A page of what was asked for."""

    data: list[Any]


@ABSENT.of_objects("api.trace")
@refusing_unknown
class TraceApi:
    """Reads traces of the store, and runs of experiments by their `trace_id`."""

    def get(self, trace_id: str) -> Trace:
        """Return a trace with its observations, or a run. Raise InputError if it is not in the store."""
        store = Store()
        if rows := store.query(_RUN, [run_key(trace_id)]):
            return Trace(_run_view(store, trace_id, *rows[0]))
        found = _items(store, item_keys(store, "traces", condition({"traceId": trace_id}, "traces"), _NEWEST_FIRST, 1))
        if not found:
            raise InputError(f"trace {trace_id!r}: not in the store {store.layout.root}")
        return found[0]

    @refusing(order_by="the newest traces come first")
    def list(
        self,
        *,
        page: int | None = 1,
        limit: int | None = 50,
        user_id: str | None = None,
        name: str | None = None,
        session_id: str | None = None,
        from_timestamp: datetime | None = None,
        to_timestamp: datetime | None = None,
        order_by: str | None = None,
        tags: str | Sequence[str] | None = None,
        version: str | None = None,
        release: str | None = None,
        environment: str | Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 Langfuse's name
    ) -> Page:
        """Return a page of the traces that meet every condition, those that began last first."""
        page, limit = page or 1, limit or 50
        if page < 1 or limit < 1:
            raise InputError(f"trace.list: got page {page} of {limit}, wanted positive numbers")
        given: dict[str, Any] = {"user_id": user_id, "name": name, "session_id": session_id}
        given |= {"version": version, "release": release}
        given |= {"tags": _listed(tags), "environment": _listed(environment)}
        given |= {"from_timestamp": _text(from_timestamp), "to_timestamp": _text(to_timestamp)}
        fields = {field: value for field, value in given.items() if value is not None}
        only = [found for part in (fields, filter) if (found := condition(part, "traces"))]
        store = Store()
        keys = item_keys(store, "traces", " and ".join(only) or None, _NEWEST_FIRST, page * limit)
        return Page(data=_items(store, keys[(page - 1) * limit :]))


@ABSENT.of_objects()
@dataclass(slots=True, kw_only=True)
class DatasetRun:
    """An experiment on a dataset."""

    id: str
    name: str
    description: str | None
    metadata: Any
    dataset_id: str | None
    dataset_name: str | None
    created_at: datetime


@ABSENT.of_objects("api.datasets")
@refusing_unknown
class DatasetsApi:
    """Reads the runs of datasets: the experiments on them."""

    def get_run(self, dataset_name: str, run_name: str) -> DatasetRun:
        """Return the newest run of this name. Raise InputError if there is none."""
        return _named_run(Store(), dataset_name, run_name)

    def get_runs(self, dataset_name: str, *, page: int | None = 1, limit: int | None = 50) -> Page:
        """Return a page of the runs of a dataset, the newest first. Several of one name have their time with it."""
        rows, limit = _experiments(Store(), dataset_name), limit or 50
        counts = Counter(row.name for row in rows)
        runs = [_dataset_run(row, row.name if counts[row.name] == 1 else default_run_name(row)) for row in rows]
        return Page(data=runs[((page or 1) - 1) * limit :][:limit])


@dataclass(slots=True, kw_only=True)
class DatasetRunItem:
    """One item of a dataset in a run."""

    id: str
    trace_id: str
    dataset_item_id: str
    dataset_run_id: str
    dataset_run_name: str


@ABSENT.of_objects("api.dataset_run_items")
@refusing_unknown
class DatasetRunItemsApi:
    """Reads the items of a dataset's run."""

    def list(self, *, dataset_id: str, run_name: str, page: int | None = 1, limit: int | None = 50) -> Page:
        """Return a page of the items that a run's task answered."""
        store, limit = Store(), limit or 50
        run = _named_run(store, find_dataset(store, None, dataset_id).name, run_name)
        query = """select run_id, example_id from source.outputs where experiment_id = ? and status = 'ok'
                   order by example_id, repetition limit ? offset ?"""
        found = store.query(query, [run.id, limit, ((page or 1) - 1) * limit])
        return Page(
            data=[
                DatasetRunItem(
                    id=identity,
                    trace_id=identity,
                    dataset_item_id=item,
                    dataset_run_id=run.id,
                    dataset_run_name=run_name,
                )
                for identity, item in found
            ]
        )


@ABSENT.of_objects("api")
@dataclass(slots=True)
class Api:
    """The part of Langfuse's API that is supported here."""

    trace: TraceApi = field(default_factory=TraceApi)
    datasets: DatasetsApi = field(default_factory=DatasetsApi)
    dataset_run_items: DatasetRunItemsApi = field(default_factory=DatasetRunItemsApi)


def default_run_name(row: ExperimentRow) -> str:
    """Return the name of a run that was given none."""
    return f"{row.name} - {row.started_at.isoformat()}"


def _experiments(store: Store, dataset_name: str) -> list[ExperimentRow]:
    """Return the experiments on a dataset, the newest first. Raise InputError if there is no such dataset."""
    find_dataset(store, dataset_name, None)
    query = "select experiment_id from source.experiments where dataset_name = ? order by started_at desc"
    found = store.query(query, [dataset_name])
    return [store.read("experiments", identity)[0] for (identity,) in found]


def _named_run(store: Store, dataset_name: str, run_name: str) -> DatasetRun:
    for row in _experiments(store, dataset_name):
        if run_name in (row.name, default_run_name(row)):
            return _dataset_run(row, run_name)
    raise InputError(f"run {run_name!r}: no experiment on the dataset {dataset_name!r}")


def _dataset_run(row: ExperimentRow, name: str) -> DatasetRun:
    return DatasetRun(
        id=row.experiment_id,
        name=name,
        description=row.description,
        metadata=from_json(row.metadata),
        dataset_id=dataset_id(row.dataset_name),
        dataset_name=row.dataset_name,
        created_at=row.started_at,
    )


def _run_view(
    store: Store, trace_id: str, experiment: str, item: str, outputs: str | None, *measured: Any
) -> TraceView:
    """Return a run of an experiment as a trace, with the metadata that Langfuse's traces of experiments have."""
    status, started_at, latency_s, tokens_in, tokens_out, cost_usd, inputs, item_metadata = measured
    row: ExperimentRow = store.read("experiments", experiment)[0]
    own: Mapping[str, Any] = from_json(row.metadata) or {}
    metadata = {"experiment_name": row.name, "experiment_run_name": row.name, **own, **(from_json(item_metadata) or {})}
    if row.dataset_name is not None:
        metadata |= {"dataset_id": dataset_id(row.dataset_name), "dataset_item_id": item}
    return TraceView(
        id=trace_id,
        name="experiment-item-run",
        started_at=started_at or row.started_at,
        latency_s=latency_s,
        status="ok" if status == "ok" else "error",
        input=unwrapped(from_json(inputs), "input"),
        output=unwrapped(from_json(outputs), "output"),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost_usd=cost_usd,
        metadata=metadata,
    )


def _items(store: Store, keys: Sequence[ItemKey]) -> list[Trace]:
    return [Trace(view) for view in items_of(store, "traces", keys)] if keys else []


def _listed(values: str | Sequence[str] | None) -> list[str] | None:
    return [values] if isinstance(values, str) else None if values is None else [*values]


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else in_utc(moment).isoformat()
