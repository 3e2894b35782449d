"""What may be asked for: the models that spec files, flows and forms share."""

from specs.connection import ConnectionSpec, EndpointConnection, LocalConnection
from specs.dataset import DatasetSpec
from specs.errors import CallError, IncompleteError, InputError
from specs.evaluator import EvaluatorSpec
from specs.experiment import ExperimentSpec, load_experiment
from specs.protocols import Complete, Completion, Embed, Message
from specs.target import ChatTarget, PythonTarget, RecordedTarget, TargetSpec

__all__ = [
    "CallError",
    "ChatTarget",
    "Complete",
    "Completion",
    "ConnectionSpec",
    "DatasetSpec",
    "Embed",
    "EndpointConnection",
    "EvaluatorSpec",
    "ExperimentSpec",
    "IncompleteError",
    "InputError",
    "LocalConnection",
    "Message",
    "PythonTarget",
    "RecordedTarget",
    "TargetSpec",
    "load_experiment",
]
