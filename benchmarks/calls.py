"""Benchmark: 2,000 questions, one target call and one judge call each, against a bare asyncio loop over the same SDK.

Run from the repository's root: `python -m benchmarks.calls [BASE_URL]`. Both call the same endpoint, in a separate
process with a latency of 100 ms and 50 calls at once: 8.0 s is ideal. Evalflows does a complete run, including the
flow, the statistics and every call and row on disk; the bare loop stores nothing. They alternate. The target is a
median ratio of at most 1.10.
"""

import asyncio
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import httpx2
import openai

from benchmarks.arguments import new_parser
from benchmarks.own_server import own_server
from evalflows.specs.protocols import Complete

QUESTIONS, PAIRS, LATENCY_S, IN_FLIGHT, WANTED = 2_000, 5, 0.1, 50, 1.10
SMALLEST = 4, 1
"""Questions and pairs."""

JUDGE = "Question: {question}\nAnswer: {answer}\nAnswer CORRECT or INCORRECT."


def make_questions(count: int) -> list[str]:
    return [f"What is {number} plus {number * 7 % 1000}? Answer with the number alone." for number in range(count)]


async def bare(base_url: str, questions: Sequence[str]) -> float:
    """Seconds for the same calls with only the SDK, a semaphore and gather."""
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

    async def answer_and_judge(question: str) -> bool:
        return "INCORRECT" not in await ask(JUDGE.format(question=question, answer=await ask(question)))

    began = time.perf_counter()
    await asyncio.gather(*(answer_and_judge(question) for question in questions))
    return time.perf_counter() - began


async def verdict(inputs: dict[str, Any], outputs: dict[str, Any], complete: Complete) -> bool:
    """Judge used by this benchmark."""
    completion = await complete(JUDGE.format(question=inputs["question"], answer=outputs["output"]), temperature=0.0)
    return "INCORRECT" not in completion.text


def run_evalflows(base_url: str, questions: Sequence[str]) -> float:
    """Seconds for a complete run without cached calls."""
    from evalflows import run
    from evalflows.specs.experiment import ExperimentSpec

    connection = {"kind": "endpoint", "base_url": base_url, "model": "mock", "max_in_flight": IN_FLIGHT}
    spec = ExperimentSpec.model_validate(
        {
            "name": "bench",
            "dataset": {"rows": [{"inputs": {"question": question}} for question in questions]},
            "targets": [{"kind": "chat", "connection": "mock", "temperature": 0.0}],
            "evaluators": [{"use": "benchmarks.calls:verdict", "connection": "mock"}],
            "connections": {"mock": connection},
            "use_cache": False,
        }
    )
    began = time.perf_counter()
    run(spec)
    return time.perf_counter() - began


@contextmanager
def endpoint() -> Iterator[str]:
    """Start the tests' endpoint in a separate process."""
    command = [sys.executable, "tests/support/endpoint.py", str(LATENCY_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield (process.stdout.readline() if process.stdout else "").strip()
        finally:
            process.communicate()  # the endpoint exits when its stdin closes


def parse_arguments() -> Namespace:
    parser = new_parser("calls", __doc__)
    parser.add_argument("base_url", nargs="?", help="another endpoint than the one that is started")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    count, pairs = SMALLEST if arguments.smallest else (QUESTIONS, PAIRS)
    questions = make_questions(count)
    with own_server(), endpoint() as own:
        base_url = arguments.base_url or own
        first = run_evalflows(base_url, questions)
        print(f"first run, including the start of Prefect's server: {first:.2f} s")
        ratios = []
        for _ in range(pairs):
            alone, whole = asyncio.run(bare(base_url, questions)), run_evalflows(base_url, questions)
            ratios.append(whole / alone)
            print(f"bare loop {alone:.2f} s, evalflows {whole:.2f} s: {ratios[-1]:.3f}", flush=True)
    print(f"median {median(ratios):.3f} of the bare loop; target: at most {WANTED}")


if __name__ == "__main__":
    main()
