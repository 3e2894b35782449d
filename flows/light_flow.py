"""Prefect's `flow` without work that only a deployment needs: a fifth of a second of the start of each run."""

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Flow
from prefect.context import FlowRunContext
from prefect.settings import get_current_settings
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

P = ParamSpec("P")
R = TypeVar("R")


class LightFlow(Flow[P, R]):
    """A flow whose parameters are plain values and specs."""

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return a spec's model as it is: it was validated when it was made. A deployed run brings JSON."""
        if isinstance(parameters.get("spec"), BaseModel):
            return parameters
        return super().validate_parameters(parameters)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:  # type: ignore[override]  # it has overloads
        """Call the flow. Of its results only exceptions are kept, in the folder that the settings name: Prefect would
        ask the server four times where to keep what. A run that calls this one has asked already."""
        results = get_current_settings().results
        if results.default_storage_block is None and FlowRunContext.get() is None:
            self.persist_result, self.result_storage = results.persist_by_default, results.local_storage_path
        return super().__call__(*arguments, **named)

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters as JSON for Prefect's UI. Prefect's own loads FastAPI for it."""
        return {name: to_jsonable_python(value, fallback=_type_name) for name, value in parameters.items()}


def _type_name(value: object) -> str:
    return f"<{type(value).__name__}>"


def light_flow(**settings: Any) -> Callable[[Callable[P, R]], LightFlow[P, R]]:
    """Decorate a function as a flow with these settings of Prefect's `flow`.

    Prefect makes a JSON schema of the parameters for each flow, though deploying makes it again. A function without
    parameters has an empty one.
    """

    def made(function: Callable[P, R]) -> LightFlow[P, R]:
        vars(function)["__signature__"] = inspect.Signature()
        light = LightFlow(function, **settings)
        for owner in (function, light):  # Prefect copies a function's attributes to its flow
            del vars(owner)["__signature__"]
        return light

    return made
