"""2,000 questions, one call of the target and one of a judge each, against a bare asyncio loop over the same SDK.

Run from the repository's root: `python -m benchmarks.calls`. Both talk to the same endpoint in a process of its own:
100 ms a call, 50 calls at once, so that 8.0 s is ideal. Ours is a whole run, flow and statistics and all, with every
call and row on disk; the bare loop keeps nothing. They take turns. Wanted: at most 1.10 times as long, in the median.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import httpx2
import openai

from specs.protocols import Complete

QUESTIONS, LATENCY_S, IN_FLIGHT, PAIRS, WANTED = 2_000, 0.1, 50, 5, 1.10
JUDGE = "Question: {question}\nAnswer: {answer}\nAnswer CORRECT or INCORRECT."


def questions() -> list[str]:
    return [f"What is {number} plus {number * 7 % 1000}? Answer with the number alone." for number in range(QUESTIONS)]


async def bare(base_url: str) -> float:
    """Seconds for the same calls by nothing but the SDK, a semaphore and gather."""
    limits = httpx2.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    http = openai.DefaultAsyncHttpxClient(limits=limits)
    client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=http)
    places = asyncio.Semaphore(IN_FLIGHT)

    async def ask(text: str) -> str:
        async with places:
            answer = await client.chat.completions.create(
                model="mock", messages=[{"role": "user", "content": text}], temperature=0.0
            )
        return answer.choices[0].message.content or ""

    async def one(question: str) -> bool:
        return "INCORRECT" not in await ask(JUDGE.format(question=question, answer=await ask(question)))

    began = time.perf_counter()
    await asyncio.gather(*(one(question) for question in questions()))
    return time.perf_counter() - began


async def verdict(inputs: dict[str, Any], outputs: dict[str, Any], complete: Complete) -> bool:
    """The judge of this benchmark."""
    said = await complete(JUDGE.format(question=inputs["question"], answer=outputs["output"]), temperature=0.0)
    return "INCORRECT" not in said.text


def ours(base_url: str) -> float:
    """Seconds for a whole run; every call is paid anew."""
    from flows import run
    from specs.experiment import ExperimentSpec

    connection = {"kind": "endpoint", "base_url": base_url, "model": "mock", "max_in_flight": IN_FLIGHT}
    spec = ExperimentSpec.model_validate(
        {
            "name": "bench",
            "dataset": {"rows": [{"inputs": {"question": question}} for question in questions()]},
            "targets": [{"kind": "chat", "connection": "mock", "temperature": 0.0}],
            "evaluators": [{"use": "benchmarks.calls:verdict", "connection": "mock"}],
            "connections": {"mock": connection},
            "fresh": True,
        }
    )
    began = time.perf_counter()
    run(spec)
    return time.perf_counter() - began


@contextmanager
def endpoint() -> Iterator[str]:
    """The tests' endpoint in a process of its own."""
    command = [sys.executable, "tests/support/endpoint.py", str(LATENCY_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield (process.stdout.readline() if process.stdout else "").strip()
        finally:
            process.communicate()  # it ends when nobody can ask it any more


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, endpoint() as own:
        base_url = sys.argv[1] if len(sys.argv) > 1 else own
        os.environ |= {"EVALFLOWS_STORE": f"{folder}/store", "PREFECT_HOME": f"{folder}/prefect"}
        print(f"first run, with a new store, its dataset and Prefect's server to start: {ours(base_url):.2f} s")
        ratios = []
        for _ in range(PAIRS):
            alone, whole = asyncio.run(bare(base_url)), ours(base_url)
            ratios.append(whole / alone)
            print(f"bare loop {alone:.2f} s, evalflows {whole:.2f} s: {ratios[-1]:.3f}", flush=True)
    print(f"median {median(ratios):.3f} of the bare loop; wanted at most {WANTED}")


if __name__ == "__main__":
    main()
