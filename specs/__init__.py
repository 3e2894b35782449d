"""What may be asked for: the models that spec files, flows and forms share."""

from specs.columns import AnswerColumns, ExampleColumns
from specs.connection import ConnectionSpec, EndpointConnection, LocalConnection
from specs.dataset import DatasetSpec, Expectation
from specs.errors import CallError, IncompleteError, InputError
from specs.evaluator import EvaluatorSpec
from specs.experiment import ExperimentSpec, load_experiment
from specs.metric import CompositeSpec, MetricSpec
from specs.protocols import Complete, Completion, Embed, Message
from specs.target import ChatTarget, HttpTarget, PythonTarget, RecordedTarget, TargetSpec

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
