"""Settings of our own evaluators, tried before anything is paid: each checks them before it asks a model."""

import asyncio
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable
from typing import Any

from evaluators.call import Bound, offer_pair, offer_run
from evaluators.subject import RunView
from specs.errors import InputError, describe
from store.records import ExampleRow
from tasks.subject import example_view

TRIED_ON = 3
"""Examples: some settings are looked at only where an example has what they are about."""

_OF_A_RUN = ("inputs.", "outputs.", "reference_outputs.", "metadata.")


class _AskedError(Exception):
    """It has come so far as to ask a model."""


def check_settings(bound: Bound, examples: Sequence[ExampleRow]) -> None:
    """Raises InputError where an evaluator refuses one of its settings.

    It is called on the first examples with the reference as the answer, and with a model that never answers. What it
    says then of the answer is of no account, as is what a path into an answer finds.
    """
    for example in examples[:TRIED_ON]:
        try:
            with ThreadPoolExecutor(1) as thread:  # whoever calls may have an event loop of their own
                thread.submit(lambda one: asyncio.run(_called(bound, one)), example).result()
        except (ValueError, re.error, TypeError) as error:
            if setting := _refused(bound, error):
                raise InputError(f"evaluator {bound.name!r}: {setting}") from error
        except Exception:
            continue


async def _called(bound: Bound, example: ExampleRow) -> None:
    seen = example_view(example)
    answer = seen.reference_outputs or {"output": "."}
    run = RunView(id="", inputs=seen.inputs, outputs=json.loads(json.dumps(answer)))
    offered = offer_pair(seen, run, run) if bound.level == "pair" else offer_run(seen, run)
    returned = bound.call({**offered, "complete": _never, "embed": _never})
    if isawaitable(returned):
        await returned


async def _never(*args: Any, **kwargs: Any) -> Any:
    raise _AskedError


def _refused(bound: Bound, error: Exception) -> str | None:
    """What is wrong with a setting, by the error's own beginning: the setting's name."""
    text = str(error)
    name = re.split(r"[:.\s]", text, maxsplit=1)[0]
    if isinstance(error, re.error) and "pattern" in bound.settings:
        name, text = "pattern", f"pattern: {describe(error)}"
    given = bound.settings.get(name)
    is_path = isinstance(given, str) and given.startswith(_OF_A_RUN)
    return text if name in bound.settings and not is_path else None
