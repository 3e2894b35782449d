"""Views of an example, of a run and of an experiment, and calls of evaluators bound to them."""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import pytest

from evalflows.evaluators.call import bind, offer_experiment, offer_run
from evalflows.evaluators.subject import Evaluation, Evaluations, ExampleView, ItemResult, RunView
from evalflows.specs.errors import InputError


def example_view(number: int = 0) -> ExampleView:
    return ExampleView(
        id=f"example-{number}",
        inputs={"question": f"question {number}"},
        reference_outputs={"answer": f"wanted {number}"},
        metadata={"topic": number},
        attachments={"image.png": "bytes"},
    )


def run_view(number: int = 0) -> RunView:
    return RunView(id=f"run-{number}", inputs={"question": f"question {number}"}, outputs={"answer": f"got {number}"})


EXAMPLE, RUN = example_view(), run_view()
SCORES = Evaluations([Evaluation(name="length", value=3.0), Evaluation(name="tone", value="polite")])
ITEM = offer_run(EXAMPLE, RUN, SCORES)
RESULTS = [
    ItemResult(item=example_view(n), output=run_view(n).outputs, evaluations=Evaluations(), run=run_view(n))
    for n in range(3)
]


def evaluate(function: Callable[..., Any], **settings: Any) -> Any:
    """Return the value of an item-level evaluator for ITEM."""
    return bind(function, settings=settings).call(ITEM)


def evaluate_run(function: Callable[..., Any], **settings: Any) -> Any:
    """Return the value of a run-level evaluator for RESULTS."""
    return bind(function, settings=settings, scope="run").call(offer_experiment(RESULTS))


def function_with(*names: str, kind: Any = Parameter.POSITIONAL_OR_KEYWORD) -> Callable[..., Any]:
    """Return a function with these parameters; it returns its arguments by name."""

    def judge(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return dict(zip(names, args, strict=False)) | kwargs

    judge.__signature__ = Signature([Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return judge


def bind_error(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        bind(function, **options)
    return str(caught.value)
