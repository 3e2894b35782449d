"""Benchmark: conversations of 6 turns between a simulated user and an agent, against a bare asyncio loop.

Run from the repository's root: `python -m benchmarks.conversations`. Both call the same endpoint by the same SDK, in a
separate process with a latency of 100 ms, 50 conversations at once: 1,000 make 12,000 calls, 24 s is ideal. They
alternate. The target is a median ratio of at most 1.10, and memory that does not grow with the number of conversations.

`python -m benchmarks.conversations users` draws what users at fault do to a gate: in some trials the user leaves its
goal, and the agent fails whatever it does. Printed is what gates with a margin of 0.05 say of 1,000 tasks, with
`user_check` (whose judge sees 95 % of the faults, and rejects 2 % of the others; `invalid_at_most` lets all pass) and
without. No model is called.
"""

import asyncio
import math
import resource
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from itertools import product
from statistics import median

import httpx2
import numpy as np
import openai

from benchmarks.arguments import new_parser
from benchmarks.calls import IN_FLIGHT, WANTED, endpoint
from benchmarks.deciders import MARGIN, Sample, Scores, ours
from benchmarks.own_server import own_server
from evalflows.specs.dialogue import MOST_TRIALS

CONVERSATIONS, TURNS, PAIRS = 1_000, 6, 3
SMALLEST = 4, 1
"""Conversations and pairs."""

SEES, REJECTS_WRONGLY = 0.95, 0.02
"""Shares of the faults that the judge sees, and of good trials that it rejects."""
N_EXAMPLES, REPLICATES, SOLVES = 1_000, 400, 0.7


def goal(number: int) -> str:
    return f"You want to know what is {number} plus {number * 7 % 1000}."


async def bare(base_url: str, count: int) -> float:
    """Seconds for the same conversations with only the SDK, a semaphore and gather."""
    limits = httpx2.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    http = openai.DefaultAsyncHttpxClient(limits=limits)
    client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=http)
    places = asyncio.Semaphore(IN_FLIGHT)

    async def ask(messages: list[dict[str, str]]) -> str:
        answer = await client.chat.completions.create(model="mock", messages=messages)  # type: ignore[arg-type]
        return answer.choices[0].message.content or ""

    async def converse(number: int) -> None:
        spoken: list[dict[str, str]] = []
        async with places:
            for _ in range(TURNS):
                seen = [
                    {"role": "assistant" if m["role"] == "user" else "user", "content": m["content"]} for m in spoken
                ]
                system = {"role": "system", "content": goal(number)}
                begin = {"role": "user", "content": "Begin."}
                spoken.append({"role": "user", "content": await ask([system, begin, *seen])})
                spoken.append({"role": "assistant", "content": await ask(spoken)})

    began = time.perf_counter()
    await asyncio.gather(*map(converse, range(count)))
    return time.perf_counter() - began


def run_evalflows(base_url: str, count: int) -> float:
    """Seconds for a complete run without cached calls."""
    from evalflows import run
    from evalflows.specs.experiment import ExperimentSpec

    connection = {"kind": "endpoint", "base_url": base_url, "model": "mock", "max_in_flight": IN_FLIGHT}
    target = {
        "kind": "conversation",
        "target": {"kind": "chat", "connection": "mock"},
        "user": {"kind": "simulated", "connection": "mock", "prompt": "{goal}"},
        "max_turns": TURNS,
    }
    spec = ExperimentSpec.model_validate(
        {
            "name": "bench",
            "dataset": {"rows": [{"inputs": {"goal": goal(number)}} for number in range(count)]},
            "targets": [target],
            "evaluators": ["turns_to_goal"],
            "connections": {"mock": connection},
            "max_concurrency": IN_FLIGHT,
            "use_cache": False,
        }
    )
    began = time.perf_counter()
    run(spec)
    return time.perf_counter() - began


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_speed(count: int, pairs: int) -> None:
    with own_server(), endpoint() as base_url:
        run_evalflows(base_url, max(1, count // 10))
        first = memory_mb()
        ratios = []
        for _ in range(pairs):
            alone, whole = asyncio.run(bare(base_url, count)), run_evalflows(base_url, count)
            ratios.append(whole / alone)
            print(f"bare loop {alone:.2f} s, evalflows {whole:.2f} s: {ratios[-1]:.3f}", flush=True)
    print(f"median {median(ratios):.3f} of the bare loop; target: at most {WANTED}")
    print(f"peak memory: {first:.0f} MB after a tenth of the conversations, {memory_mb():.0f} MB at the end")


def drawn_sides(
    rng: np.random.Generator, bad_users: Sequence[float], loss: float, *, checks: bool
) -> list[dict[str, Scores]]:
    """Return whether each example was solved, of candidate and baseline; None where no trial counts.

    `bad_users` are the shares of trials whose user leaves its goal, so that the agent fails.
    """
    difficulty, sides = rng.random(N_EXAMPLES), []
    for share, worse in zip(bad_users, (loss, 0.0), strict=True):
        solved, values = (difficulty < SOLVES - worse).astype(float), np.full(N_EXAMPLES, np.nan)
        for _ in range(MOST_TRIALS if checks else 1):
            bad = rng.random(N_EXAMPLES) < share
            rejected = checks & (rng.random(N_EXAMPLES) < np.where(bad, SEES, REJECTS_WRONGLY))
            counts = np.isnan(values) & ~rejected
            values[counts] = np.where(bad, 0.0, solved)[counts]
        named: Scores = {
            f"q{number}": None if math.isnan(value) else value for number, value in enumerate(values.tolist())
        }
        sides.append({"solved": named})
    return sides


def print_error_rates() -> None:
    print(f"{'users at fault (candidate, baseline)':38} true loss  user_check    PASS    FAIL    open")
    for bad_users, loss, checks in product(((0.2, 0.2), (0.3, 0.1), (0.1, 0.3)), (0.0, MARGIN), (False, True)):
        rng = np.random.default_rng([int(100 * bad_users[0]), int(100 * loss), checks])
        counts: Counter[str] = Counter()
        for _ in range(REPLICATES):
            candidate, baseline = drawn_sides(rng, bad_users, loss, checks=checks)
            counts[ours(Sample(baseline=baseline, candidate=candidate, clusters=None))[0]] += 1
        shares = [counts[said] / REPLICATES for said in ("pass", "block", "open")]
        figures = "  ".join(f"{share:6.1%}" for share in shares)
        users = f"{bad_users[0]:.0%}, {bad_users[1]:.0%}"
        print(f"{users:38} {loss:9.2f}  {'yes' if checks else 'no':10}  {figures}", flush=True)


def parse_arguments() -> Namespace:
    parser = new_parser("conversations", __doc__)
    parser.add_argument("what", nargs="?", choices=["speed", "users"], default="speed")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.what == "users":
        print_error_rates()
    else:
        measure_speed(*(SMALLEST if arguments.smallest else (CONVERSATIONS, PAIRS)))


if __name__ == "__main__":
    main()
