"""The methods of LangSmith's client for experiments, runs and feedback."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from evalflows.compat.langsmith import runs
from evalflows.compat.langsmith.schemas import Feedback, Fields, Identity, Run, TracerSession
from evalflows.compat.langsmith.views import dataset_id, run_key
from evalflows.compat.refusal import refusing
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store

_NO_LANGUAGE = "filter the returned runs, or query the store with SQL: store.connect()"
_ROOTS_ONLY = "the steps of a run are in its child_runs"


class RunMethods:
    """A project is an experiment; a run is one answer of its target to one example."""

    @refusing(
        run_type=_ROOTS_ONLY,
        trace_id=_ROOTS_ONLY,
        parent_run_id=_ROOTS_ONLY,
        query=_NO_LANGUAGE,
        filter=_NO_LANGUAGE,
        trace_filter=_NO_LANGUAGE,
        tree_filter=_NO_LANGUAGE,
        select="runs are always returned whole",
    )
    def list_runs(
        self,
        *,
        project_id: Identity | Sequence[Identity] | None = None,
        project_name: str | Sequence[str] | None = None,
        run_type: str | None = None,
        trace_id: Identity | None = None,
        reference_example_id: Identity | None = None,
        query: str | None = None,
        filter: str | None = None,  # noqa: A002
        trace_filter: str | None = None,
        tree_filter: str | None = None,
        is_root: bool | None = None,
        parent_run_id: Identity | None = None,
        start_time: datetime | None = None,
        error: bool | None = None,
        run_ids: Sequence[Identity] | None = None,
        select: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Run]:
        """Yield the root runs of experiments, newest first; a name means the newest experiment of that name.

        Raises InputError if nothing identifies the experiments, and for unsupported filters.
        """
        if is_root is False:
            raise InputError(f"list_runs: is_root: got False, wanted True: {_ROOTS_ONLY}")
        example = None if reference_example_id is None else str(reference_example_id)
        ids = None if run_ids is None else {run_key(identity) for identity in run_ids}
        experiments = runs.experiments_of(Store(), _flattened(project_id, project_name), ids or (), example)
        matching = (
            run
            for run in runs.runs_of(Store(), experiments)
            if (ids is None or run.id in ids)
            and example in (None, run.reference_example_id)
            and error in (None, run.error is not None)
            and (start_time is None or (run.start_time is not None and run.start_time >= start_time))
        )
        return islice(matching, limit)

    @refusing(start_time="a run is found by its id alone")
    def read_run(
        self,
        run_id: Identity,
        load_child_runs: bool = False,
        *,
        project_id: Identity | None = None,
        start_time: datetime | None = None,
    ) -> Run:
        """Return a run, always with its child runs. Raises InputError if it does not exist."""
        run = next(self.list_runs(run_ids=[run_id], project_id=project_id), None)
        if run is None:
            raise InputError(f"run {str(run_id)!r}: not in the store")
        return run

    @refusing(feedback_source_type="filter the returned feedback")
    def list_feedback(
        self,
        *,
        run_ids: Sequence[Identity] | None = None,
        feedback_key: str | Sequence[str] | None = None,
        feedback_source_type: Any = None,
        limit: int | None = None,
    ) -> Iterator[Feedback]:
        """Yield the judgements of runs, oldest first; a failed one has no score, and its error as the comment."""
        return islice(runs.feedback_of(Store(), run_ids, feedback_key), limit)

    @refusing(correction="put it in the comment, or add it as an example to a dataset")
    def create_feedback(
        self,
        run_id: Identity | None = None,
        key: str = "unnamed",
        *,
        score: float | None = None,
        value: str | float | None = None,
        trace_id: Identity | None = None,
        correction: Fields | None = None,
        comment: str | None = None,
        source_info: Mapping[str, Any] | None = None,
    ) -> Feedback:
        """Store a person's feedback on a run. Raises InputError if the run does not exist."""
        run = run_id if run_id is not None else trace_id
        if run is None:
            raise InputError("create_feedback: run_id: got None, wanted the id of a run")
        return runs.label_run(Store(), run, key, score=score, value=value, comment=comment, metadata=source_info)

    def read_project(
        self, *, project_id: Identity | None = None, project_name: str | None = None, include_stats: bool = False
    ) -> TracerSession:
        """Return an experiment. Raises InputError if it does not exist."""
        references = _flattened(project_id, project_name)
        if len(references) != 1:
            raise InputError("read_project: wanted exactly one of project_name and project_id")
        return runs.project_of(Store(), references[0], include_stats=include_stats)

    def has_project(self, project_name: str, *, project_id: str | None = None) -> bool:
        """Whether there is an experiment of this name."""
        return any(row.name == project_name for row in runs.all_projects(Store()))

    @refusing(dataset_version="filter the returned experiments by start_time")
    def list_projects(
        self,
        project_ids: Sequence[Identity] | None = None,
        name: str | None = None,
        name_contains: str | None = None,
        reference_dataset_id: Identity | None = None,
        reference_dataset_name: str | None = None,
        reference_free: bool | None = None,
        include_stats: bool | None = None,
        dataset_version: str | None = None,
        limit: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Iterator[TracerSession]:
        """Yield the experiments that match every given filter, newest first. None of them is free of a dataset."""
        ids = None if project_ids is None else {str(identity) for identity in project_ids}
        dataset = dataset_id(reference_dataset_name) if reference_dataset_id is None else str(reference_dataset_id)
        matching = (
            project
            for project in runs.all_projects(Store(), include_stats=bool(include_stats))
            if (ids is None or project.id in ids)
            and name in (None, project.name)
            and (name_contains or "") in project.name
            and dataset in (None, project.reference_dataset_id)
            and not reference_free
            and (metadata or {}).items() <= project.metadata.items()
        )
        return islice(matching, limit)


def _flattened(*arguments: Identity | Sequence[Identity] | None) -> list[Identity]:
    """Return the ids of all arguments, each of which is None, one id or several."""
    return [
        identity
        for argument in arguments
        if argument is not None
        for identity in (argument if isinstance(argument, Sequence) and not isinstance(argument, str) else [argument])
    ]
