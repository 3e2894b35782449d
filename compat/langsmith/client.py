"""LangSmith's client, over the store that EVALFLOWS_STORE names."""

from collections.abc import Sequence
from typing import Any, overload

from compat.langsmith.comparison import ComparativeExperimentResults
from compat.langsmith.dataset_methods import DatasetMethods
from compat.langsmith.evaluation import ExperimentResults, Pair, aevaluate, evaluate
from compat.langsmith.refusal import refusing
from compat.langsmith.run_methods import RunMethods
from compat.langsmith.schemas import Identity

_ALL_IS_KEPT = "what is recorded is kept as it is; leave out of inputs and outputs what must not be"


class Client(DatasetMethods, RunMethods):
    """Datasets, experiments and feedback. It holds nothing: every method reads the store as it is then.

    Where a server is, and the key to it, is taken and not used: there is none.
    """

    @refusing(anonymizer=_ALL_IS_KEPT, hide_inputs=_ALL_IS_KEPT, hide_outputs=_ALL_IS_KEPT, hide_metadata=_ALL_IS_KEPT)
    def __init__(
        self,
        api_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_ms: int | tuple[int, ...] | None = None,
        anonymizer: Any = None,
        hide_inputs: Any = None,
        hide_outputs: Any = None,
        hide_metadata: Any = None,
        workspace_id: Identity | None = None,
    ) -> None:
        pass

    @overload
    def evaluate(
        self, target: Pair, /, *, evaluators: Sequence[Any], **options: Any
    ) -> ComparativeExperimentResults: ...

    @overload
    def evaluate(
        self,
        target: Any,
        /,
        data: Any = None,
        evaluators: Sequence[Any] | None = None,
        summary_evaluators: Sequence[Any] | None = None,
        **options: Any,
    ) -> ExperimentResults: ...

    def evaluate(
        self,
        target: Any,
        /,
        data: Any = None,
        evaluators: Sequence[Any] | None = None,
        summary_evaluators: Sequence[Any] | None = None,
        **options: Any,
    ) -> ExperimentResults | ComparativeExperimentResults:
        """See `evaluate`; the options are the same."""
        return evaluate(target, data, evaluators, summary_evaluators, client=self, **options)

    @overload
    async def aevaluate(
        self, target: Pair, /, *, evaluators: Sequence[Any], **options: Any
    ) -> ComparativeExperimentResults: ...

    @overload
    async def aevaluate(
        self,
        target: Any,
        /,
        data: Any = None,
        evaluators: Sequence[Any] | None = None,
        summary_evaluators: Sequence[Any] | None = None,
        **options: Any,
    ) -> ExperimentResults: ...

    async def aevaluate(
        self,
        target: Any,
        /,
        data: Any = None,
        evaluators: Sequence[Any] | None = None,
        summary_evaluators: Sequence[Any] | None = None,
        **options: Any,
    ) -> ExperimentResults | ComparativeExperimentResults:
        """See `aevaluate`; the options are the same."""
        return await aevaluate(target, data, evaluators, summary_evaluators, client=self, **options)

    def flush(self, timeout: float | None = None) -> None:
        """What was recorded is on the disk already."""
