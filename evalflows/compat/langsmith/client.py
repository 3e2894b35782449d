"""LangSmith's client on top of the store that EVALFLOWS_STORE names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.langsmith.comparison import ComparativeExperimentResults
from evalflows.compat.langsmith.dataset_methods import DatasetMethods
from evalflows.compat.langsmith.evaluation import ExperimentResults, Pair, aevaluate, evaluate
from evalflows.compat.langsmith.example_methods import ExampleMethods
from evalflows.compat.langsmith.run_methods import RunMethods
from evalflows.compat.langsmith.schemas import Identity
from evalflows.compat.refusal import refusing

_NO_REDACTION = "everything is stored unchanged; leave sensitive data out of inputs and outputs"


class Client(DatasetMethods, ExampleMethods, RunMethods):
    """Datasets, experiments and feedback. Stateless: every method reads the store's current content.

    A server's address and key are accepted and ignored, since there is no server.
    """

    @refusing(
        anonymizer=_NO_REDACTION, hide_inputs=_NO_REDACTION, hide_outputs=_NO_REDACTION, hide_metadata=_NO_REDACTION
    )
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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise ABSENT.method(type(self).__name__, name)

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
        """Call `evaluate` with the same options."""
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
        """Call `aevaluate` with the same options."""
        return await aevaluate(target, data, evaluators, summary_evaluators, client=self, **options)

    def flush(self, timeout: float | None = None) -> None:
        """Do nothing: everything recorded is already on disk."""
