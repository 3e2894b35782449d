"""What LangSmith's client does with experiments, their runs and their feedback."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from compat.langsmith import runs
from compat.langsmith.refusal import refusing
from compat.langsmith.schemas import Feedback, Fields, Identity, Run, TracerSession
from compat.langsmith.views import run_key
from specs.errors import InputError
from store.parquet import Store

_NO_LANGUAGE = "filter what is returned, or ask the store with SQL: store.connect()"
_ROOTS_ONLY = "what happened in a run is in its child_runs"


class RunMethods:
    """A project is an experiment, a run is what its target made of one example."""

    @refusing(
        run_type=_ROOTS_ONLY,
        trace_id=_ROOTS_ONLY,
        parent_run_id=_ROOTS_ONLY,
        query=_NO_LANGUAGE,
        filter=_NO_LANGUAGE,
        trace_filter=_NO_LANGUAGE,
        tree_filter=_NO_LANGUAGE,
        select="a run is given whole",
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
        """The runs of experiments (an id or a name, which means the newest so called), the newest first.

        Each is a root. Raises InputError where nothing says which, and for what cannot be found by.
        """
        if is_root is False:
            raise InputError(f"list_runs: is_root: got False, wanted True: {_ROOTS_ONLY}")
        example = None if reference_example_id is None else str(reference_example_id)
        wanted = None if run_ids is None else {run_key(identity) for identity in run_ids}
        experiments = runs.experiments_of(Store(), _several(project_id, project_name), wanted or (), example)
        found = (
            run
            for run in runs.runs_of(Store(), experiments)
            if (wanted is None or run.id in wanted)
            and example in (None, run.reference_example_id)
            and error in (None, run.error is not None)
            and (start_time is None or (run.start_time is not None and run.start_time >= start_time))
        )
        return islice(found, limit)

    @refusing(start_time="a run is found by its id")
    def read_run(
        self,
        run_id: Identity,
        load_child_runs: bool = False,
        *,
        project_id: Identity | None = None,
        start_time: datetime | None = None,
    ) -> Run:
        """A run, always with its child runs. Raises InputError for one that is not there."""
        found = next(self.list_runs(run_ids=[run_id], project_id=project_id), None)
        if found is None:
            raise InputError(f"run {str(run_id)!r}: not in the store")
        return found

    @refusing(feedback_source_type="filter what is returned")
    def list_feedback(
        self,
        *,
        run_ids: Sequence[Identity] | None = None,
        feedback_key: str | Sequence[str] | None = None,
        feedback_source_type: Any = None,
        limit: int | None = None,
    ) -> Iterator[Feedback]:
        """The judgements of runs, the oldest first; one that failed has no score, and its error as the comment."""
        return islice(runs.feedback_of(Store(), run_ids, feedback_key), limit)

    @refusing(correction="keep it in the comment, or as an example of a dataset")
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
        """Keep what somebody says of a run. Raises InputError for a run that is not there."""
        run = run_id if run_id is not None else trace_id
        if run is None:
            raise InputError("create_feedback: run_id: got None, wanted the id of a run")
        return runs.label_run(Store(), run, key, score=score, value=value, comment=comment, metadata=source_info)

    def read_project(
        self, *, project_id: Identity | None = None, project_name: str | None = None, include_stats: bool = False
    ) -> TracerSession:
        """An experiment. Raises InputError for one that is not there."""
        named = _several(project_id, project_name)
        if len(named) != 1:
            raise InputError("read_project: wanted just one of project_name and project_id")
        return runs.project_of(Store(), named[0], include_stats=include_stats)


def _several(*given: Identity | Sequence[Identity] | None) -> list[Identity]:
    """One or several of each, together."""
    return [
        identity
        for one in given
        if one is not None
        for identity in (one if isinstance(one, Sequence) and not isinstance(one, str) else [one])
    ]
