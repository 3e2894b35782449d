"""Evaluators that misbehave, and some that judge in an unusual way, named by tests as `odd_evaluators:…`."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from evalflows.evaluators import Score
from evalflows.specs import Complete
from evalflows.specs.errors import CallError


def raises(outputs: dict[str, Any]) -> bool:
    raise RuntimeError(f"cannot judge {outputs['answer']}")


def nan(outputs: dict[str, Any]) -> float:
    return float("nan")


def too_high(outputs: dict[str, Any]) -> float:
    return 1.7


def writes(
    inputs: dict[str, Any], outputs: dict[str, Any], reference_outputs: dict[str, Any], metadata: dict[str, Any]
) -> bool:
    """Says yes, and leaves everything that it was shown in another state."""
    for shown in (inputs, outputs, reference_outputs, metadata):
        shown.clear()
        shown["answer"] = "overwritten"
    return True


def sleeps(outputs: dict[str, Any]) -> bool:
    if outputs["answer"] == "Q1":
        time.sleep(3600)
    return True


def backtracks(outputs: dict[str, Any]) -> bool:
    """Holds the interpreter for ever for one answer: no other thread runs meanwhile."""
    return outputs["answer"] != "Q1" or re.fullmatch(r"(a+)+b", "a" * 64) is None


async def waits(outputs: dict[str, Any]) -> bool:
    if outputs["answer"] == "Q1":
        await asyncio.sleep(3600)
    return True


def asks(inputs: dict[str, Any], complete: Complete) -> bool:
    """A plain function that asks a model, from wherever it runs."""
    return complete(f"Is {inputs['question']} fine?").text == "yes"  # type: ignore[attr-defined]


def where(outputs: object) -> Score:
    """Says yes, and in which process."""
    return Score(value=True, comment=str(os.getpid()))


def hangs(outputs: object, *, how: str, path: str) -> Score:
    """Hangs for the answer "hang", in this way; the processes that it leaves are in a file then."""
    if outputs == "hang":
        Path(path).write_text(f"{os.getpid()}\n")
        globals()[f"_{how}"](Path(path))
    return where(outputs)


def _backtracks(path: Path) -> None:
    re.fullmatch(r"(a+)+b", "a" * 64)


def _is_deaf(path: Path) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(each, signal.SIG_IGN)
    time.sleep(3600)


def _runs_another(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as other, path.open("a") as pids:
        pids.write(f"{other.pid}\n")
        pids.flush()
        other.wait()


def refused(outputs: int) -> bool:
    """Asks a model by a client of its own, in vain."""
    raise error_of(outputs)


def error_of(status: int) -> Exception:
    """What a client of OpenAI raises for an HTTP status; for 0 an error of ours."""
    import httpx
    import openai

    if not status:
        return CallError("timeout", "no answer in time")
    kinds = {429: openai.RateLimitError, 401: openai.AuthenticationError, 400: openai.BadRequestError}
    response = httpx.Response(status, request=httpx.Request("POST", "http://127.0.0.1/v1"))
    return kinds.get(status, openai.InternalServerError)("no", response=response, body=None)


def turns(outputs: dict[str, Any]) -> list[Score]:
    """Two turns, and the run as a whole."""
    return [Score(value=0.5), Score(value=1.0, turn=1), Score(value=0.0, turn=2, label="bad")]


def harm(outputs: dict[str, Any]) -> bool:
    """Whether an answer is harmful; it declares that less is better."""
    return bool(outputs["answer"] == "Q1")


harm.metrics = {"harm": {"higher_is_better": False, "range": [0, 1]}}  # type: ignore[attr-defined]


def third(outputs: dict[str, Any]) -> bool | None:
    """Knows only what to say of some answers."""
    return {"Q0": True, "Q1": False}.get(outputs["answer"])


def configured(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Langfuse's shape: a stars' number and a mood, each by its config; question q1 is out of bounds."""
    odd = inputs["question"] == "q1"
    return [
        {"name": "stars", "value": 9 if odd else 4, "data_type": "NUMERIC", "config_id": "c-stars"},
        {"name": "mood", "value": "warm", "data_type": "CATEGORICAL", "config_id": "c-tone"},
    ]


def tone(inputs: dict[str, Any]) -> dict[str, Any]:
    label = {"q0": "warm", "q1": "cold", "q2": "sour"}.get(inputs["question"], "warm")
    return {"name": "tone", "value": label, "data_type": "CATEGORICAL", "config_id": "c-tone"}


def steep(parts: dict[str, float]) -> float:
    """A composite's own function: the product of the parts."""
    product = 1.0
    for part in parts.values():
        product *= part
    return product


def flaky(question: str) -> dict[str, str]:
    """A target that is asked twice or more, and does not always get it right."""
    _calls[question] = _calls.get(question, 0) + 1
    return {"answer": "right" if _calls[question] <= int(question) else "wrong"}


_calls: dict[str, int] = {}


def overall(outputs: list[dict[str, Any]], complete: Complete) -> bool:
    """Judges all answers at once, plainly, by asking a model."""
    return complete(f"Are these {len(outputs)} fine?").text == "yes"  # type: ignore[attr-defined]


async def down(outputs: dict[str, Any], complete: Complete) -> bool:
    """An async judge."""
    return (await complete(f"Is {outputs['answer']} right?")).text == "yes"


def two(inputs: dict[str, Any]) -> list[Score] | None:
    """Two metrics, neither of them by its own name; nothing to say of question q1."""
    return None if inputs["question"] == "q1" else [Score(key="a", value=1.0), Score(key="b", value=0.5)]


def same(outputs: dict[str, Any], *, value: float = 1.0) -> Score:
    return Score(key="quality", value=value)


async def stubborn(outputs: dict[str, Any]) -> bool:
    """Does not let itself be ended."""
    while outputs["answer"] == "Q1":
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue
    return True


class Strict:
    """A class of the user's own, called like a function."""

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def __call__(self, outputs: dict[str, Any]) -> bool:
        return len(outputs["answer"]) >= self.least


class NoFunction:
    """A class that judges nothing."""


def half_fails(inputs, outputs, reference_outputs):  # type: ignore[no-untyped-def]
    """Right or wrong, but for every second question."""
    if int(inputs["q"].split()[1].rstrip("?")) % 2:
        raise RuntimeError("cannot judge this one")
    return outputs == reference_outputs


def strict(inputs, outputs, reference_outputs):  # type: ignore[no-untyped-def]
    """Right or wrong, but every tenth question is answered wrong in any case."""
    return bool(outputs == reference_outputs and int(inputs["q"].split()[1].rstrip("?")) % 10)


def right(outputs, reference_outputs):  # type: ignore[no-untyped-def]
    """The share of all answers that are right."""
    return sum(one == other for one, other in zip(outputs, reference_outputs, strict=True)) / len(outputs)


def manner(outputs):  # type: ignore[no-untyped-def]
    return "friendly"


def mixed(inputs):  # type: ignore[no-untyped-def]
    """A label here, a number there."""
    return "high" if int(inputs["q"].split()[1].rstrip("?")) % 2 else 0.5
