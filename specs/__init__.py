"""The specs: pydantic models shared by spec files, flows and the forms in Prefect's UI."""

from evalflows.specs.columns import AnswerColumns, ExampleColumns
from evalflows.specs.connection import ConnectionSpec, EndpointConnection, LocalConnection
from evalflows.specs.dataset import DatasetSpec, Expectation
from evalflows.specs.errors import CallError, IncompleteError, InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.experiment import ExperimentSpec, load_experiment
from evalflows.specs.metric import CompositeSpec, MetricSpec
from evalflows.specs.protocols import Complete, Completion, Embed, Message
from evalflows.specs.target import ChatTarget, HttpTarget, PythonTarget, RecordedTarget, TargetSpec

__all__ = [
    "AnswerColumns",
    "CallError",
    "ChatTarget",
    "Complete",
    "Completion",
    "CompositeSpec",
    "ConnectionSpec",
    "DatasetSpec",
    "Embed",
    "EndpointConnection",
    "EvaluatorSpec",
    "ExampleColumns",
    "Expectation",
    "ExperimentSpec",
    "HttpTarget",
    "IncompleteError",
    "InputError",
    "LocalConnection",
    "Message",
    "MetricSpec",
    "PythonTarget",
    "RecordedTarget",
    "TargetSpec",
    "load_experiment",
]
