"""Check the settings of our own evaluators with a trial call: they validate settings before they call a model."""

import asyncio
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable
from typing import Any

from evalflows.evaluators.call import Bound, offer_pair, offer_run
from evalflows.evaluators.subject import RunView
from evalflows.execution.views import example_view
from evalflows.specs.errors import InputError, describe
from evalflows.store.records import ExampleRow

MAX_EXAMPLES = 3
"""Examples to try: some settings are only read if an example has the field that they concern."""

_OF_A_RUN = ("inputs.", "outputs.", "reference_outputs.", "metadata.")


class _ModelCalledError(Exception):
    """The evaluator got as far as calling a model."""


def check_settings(bound: Bound, examples: Sequence[ExampleRow]) -> None:
    """Raise InputError if an evaluator rejects one of its settings.

    The evaluator is called on the first examples with the reference as the answer, and with a model that never answers.
    Its scores are ignored, and so are errors about paths into the answer.
    """
    for example in examples[:MAX_EXAMPLES]:
        try:
            with ThreadPoolExecutor(1) as thread:  # the caller may already run an event loop
                thread.submit(lambda row: asyncio.run(_call(bound, row)), example).result()
        except (ValueError, re.error, TypeError) as error:
            if problem := _setting_error(bound, error):
                raise InputError(f"evaluator {bound.name!r}: {problem}") from error
        except Exception:
            continue


async def _call(bound: Bound, example: ExampleRow) -> None:
    view = example_view(example)
    answer = view.reference_outputs or {"output": "."}
    run = RunView(id="", inputs=view.inputs, outputs=json.loads(json.dumps(answer)))
    available = offer_pair(view, run, run) if bound.scope == "pair" else offer_run(view, run)
    returned = bound.call({**available, "complete": _never, "embed": _never})
    if isawaitable(returned):
        await returned


async def _never(*args: Any, **kwargs: Any) -> Any:
    raise _ModelCalledError


def _setting_error(bound: Bound, error: Exception) -> str | None:
    """Return what is wrong with a setting; None if the error is not about a setting, whose name it would start with."""
    text = str(error)
    name = re.split(r"[:.\s]", text, maxsplit=1)[0]
    if isinstance(error, re.error) and "pattern" in bound.settings:
        name, text = "pattern", f"pattern: {describe(error)}"
    value = bound.settings.get(name)
    is_path = isinstance(value, str) and value.startswith(_OF_A_RUN)
    return text if name in bound.settings and not is_path else None
