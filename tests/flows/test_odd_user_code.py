"""What the user's code does that others' hardly does: it costs one row, and the run goes on."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import date
from typing import Any

import pytest
from catalog_rows import rows

from evalflows.api.running import run
from evalflows.specs.errors import IncompleteError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.reference import refer

pytestmark = pytest.mark.usefixtures("prefect_api")


class OddError(Exception):
    def __str__(self) -> str:
        raise TypeError("no text")


def circular(q: str) -> Any:
    found: dict[str, Any] = {}
    found["self"] = found
    return found


def unprintable(q: str) -> str:
    raise OddError


def cancels(q: str) -> str:
    raise asyncio.CancelledError


def streams(q: str) -> Iterator[str]:
    yield from ("a", q)


def yields_numbers(q: str) -> Iterator[int]:
    yield 1


async def streams_later(q: str) -> AsyncIterator[str]:
    for part in ("a", q):
        await asyncio.sleep(0)
        yield part


async def cancels_its_task(q: str) -> str:
    task = asyncio.create_task(asyncio.sleep(5))
    await asyncio.sleep(0)
    task.cancel()
    await task
    return q


async def answers_later(q: str) -> str:
    return q


def hangs(q: str) -> str:
    time.sleep(3)
    return q


async def hangs_later(q: str) -> str:
    await asyncio.sleep(30)
    return q


def fine(q: str) -> Any:
    return {"at": date(2026, 11, 26), "missing": float("nan")}


SYNC = [circular, unprintable, cancels, streams, yields_numbers, streams_later, lambda q: answers_later(q), hangs]
WANTED = {
    "circular": ("failed", "bad_return", "outputs: nested too deeply, or contains itself"),
    "unprintable": ("failed", "raised", "OddError: its text cannot be built: TypeError"),
    "cancels": ("failed", "raised", "CancelledError"),
    "streams": ("ok", None, '{"output":"ax"}'),
    "yields_numbers": ("failed", "bad_return", "yielded int, wanted texts, or one value that is returned"),
    "streams_later": ("ok", None, '{"output":"ax"}'),
    "<lambda>": ("ok", None, '{"output":"x"}'),
    "hangs": ("failed", "too_slow", "took longer than 0.2 s and was left running"),
    "cancels_its_task": ("failed", "raised", "CancelledError"),
    "hangs_later": ("failed", "too_slow", "took longer than 0.2 s and was stopped"),
    "fine": ("ok", None, '{"at":"2026-11-26","missing":null}'),
}


def unfair(outputs: dict[str, Any]) -> bool:
    raise asyncio.CancelledError


def first(outputs: dict[str, Any]) -> dict[str, Any]:
    return {"key": "quality", "score": 1}


def second(outputs: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": "quality", "score": 0}, {"key": "length", "score": 3}]


async def later(outputs: dict[str, Any]) -> bool:
    return True


@pytest.mark.parametrize(
    "functions",
    [
        pytest.param([*SYNC, fine], id="sync", marks=pytest.mark.soak),
        pytest.param([*SYNC, fine, cancels_its_task, hangs_later], id="mixed"),
    ],
)
def test_odd_code_costs_its_own_rows_only(functions: list[Any]) -> None:
    targets = [
        {
            "kind": "python",
            "name": function.__name__,
            "function": refer(function),
            "timeout_s": 0.2 if "hangs" in function.__name__ else None,
        }
        for function in functions
    ]
    spec = {
        "name": "odd",
        "dataset": {"rows": [{"id": "a", "inputs": {"q": "x"}}]},
        "targets": targets,
        "evaluators": [
            *({"use": refer(rule), "name": rule.__name__} for rule in (unfair, first, second)),
            {"use": refer(lambda outputs: later(outputs)), "name": "later"},
        ],
    }
    with pytest.raises(IncompleteError):  # some targets have no answer
        run(ExperimentSpec.model_validate(spec))
    found = {
        target: (status, kind, (error or outputs).split(" (")[0])
        for target, status, kind, error, outputs in rows(
            "select target, o.status, error_kind, error, outputs from outputs o join experiments using (experiment_id)"
        )
    }
    assert found == {function.__name__: WANTED[function.__name__] for function in functions}
    judged = rows("""select evaluator, metric, scores.status, error_kind, count(*) from scores
                     where error_kind is distinct from 'no_output' group by all order by all""")
    good = sum(status == "ok" for status, *_ in found.values())
    assert judged == [
        ("first", "quality", "scored", None, good),
        ("later", "later", "scored", None, good),
        ("second", "second", "failed", "bad_return", good),
        ("unfair", "unfair", "failed", "raised", good),
    ]
    ((error,),) = rows("select distinct error from scores where evaluator = 'second' and error_kind = 'bad_return'")
    assert error == "returned the key 'quality', which 'first' gives too; wanted a key of its own, such as 'second'"
