"""The specs: pydantic models shared by spec files, flows and the forms in Prefect's UI."""

from typing import TYPE_CHECKING

from evalflows.specs.late_names import lazy_names

if TYPE_CHECKING:
    from evalflows.specs.columns import AnswerColumns, ExampleColumns
    from evalflows.specs.comparison import CompareSpec, ComparisonSpec
    from evalflows.specs.connections import (
        AnthropicConnection,
        ConnectionSpec,
        EndpointConnection,
        GoogleConnection,
        LocalConnection,
    )
    from evalflows.specs.dataset import DatasetSpec, Expectation
    from evalflows.specs.errors import CallError, IncompleteError, InputError
    from evalflows.specs.evaluator import EvaluatorSpec, TierSpec
    from evalflows.specs.experiment import ExperimentSpec, load_experiment
    from evalflows.specs.gate import GateSpec
    from evalflows.specs.metrics import CompositeSpec, MetricSpec
    from evalflows.specs.protocols import Complete, Completion, Embed, Message
    from evalflows.specs.quarantine import QuarantineSpec
    from evalflows.specs.target import (
        ChatTarget,
        ConversationTarget,
        HttpTarget,
        PythonTarget,
        RecordedTarget,
        TargetSpec,
    )
    from evalflows.specs.traces import TraceEvaluationSpec
    from evalflows.specs.watch import WatchSpec

__all__ = [
    "AnswerColumns", "AnthropicConnection", "CallError", "ChatTarget", "CompareSpec", "ComparisonSpec", "Complete",
    "Completion", "CompositeSpec", "ConnectionSpec", "ConversationTarget", "DatasetSpec", "Embed",
    "EndpointConnection", "EvaluatorSpec", "ExampleColumns", "Expectation", "ExperimentSpec", "GateSpec",
    "GoogleConnection", "HttpTarget", "IncompleteError", "InputError", "LocalConnection", "Message", "MetricSpec",
    "PythonTarget", "QuarantineSpec", "RecordedTarget", "TargetSpec", "TierSpec", "TraceEvaluationSpec", "WatchSpec",
    "load_experiment",
]  # fmt: skip


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "columns": ("AnswerColumns", "ExampleColumns"),
        "comparison": ("CompareSpec", "ComparisonSpec"),
        "connections": (
            *("AnthropicConnection", "ConnectionSpec", "EndpointConnection", "GoogleConnection", "LocalConnection"),
        ),
        "dataset": ("DatasetSpec", "Expectation"),
        "errors": ("CallError", "IncompleteError", "InputError"),
        "evaluator": ("EvaluatorSpec", "TierSpec"),
        "experiment": ("ExperimentSpec", "load_experiment"),
        "gate": ("GateSpec",),
        "metrics": ("CompositeSpec", "MetricSpec"),
        "protocols": ("Complete", "Completion", "Embed", "Message"),
        "quarantine": ("QuarantineSpec",),
        "target": (
            *("ChatTarget", "ConversationTarget", "HttpTarget", "PythonTarget", "RecordedTarget", "TargetSpec"),
        ),
        "traces": ("TraceEvaluationSpec",),
        "watch": ("WatchSpec",),
    },
)
