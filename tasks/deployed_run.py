"""Restrict what a deployment's run may name: its spec comes from a form or from Prefect's API."""

from pathlib import Path

from prefect.context import FlowRunContext

from evalflows.llm.connections import addresses_of_keys
from evalflows.specs import permitted, permitted_environment
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.connection import LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.paths import located
from evalflows.specs.trace_evaluation import TraceEvaluationSpec


def restrict_deployed_run(spec: ExperimentSpec | ComparisonSpec | TraceEvaluationSpec) -> None:
    """If this flow run is one of a deployment, let specs name only the modules and files of the worker's folder.

    Keys are then sent only to the addresses for which the worker's owner has defined or allowed them. This holds for
    the rest of the process, which a worker starts for each flow run. Raise InputError if the spec names the file of a
    model elsewhere: later it holds the shared connections too, whose files are the user's choice.
    """
    if not restrict_process():
        return
    for name, connection in spec.connections.items():
        if isinstance(connection, LocalConnection) and connection.gguf is not None:
            try:
                located(connection.gguf)
            except InputError as error:
                raise InputError(f"connection {name!r}: gguf: {error}") from error


def restrict_process() -> bool:
    """Restrict this process if the current flow run is one of a deployment. Return whether it is.

    A process that chunks are sent to stays restricted too.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.deployment_id is None:
        return False
    permitted.restrict(Path.cwd())
    permitted_environment.restrict(Path.cwd(), addresses_of_keys())
    return True
