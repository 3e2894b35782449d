"""Benchmark: what 1,000 examples cost, with two targets, two judges and a judge of pairs, in each way to pay less.

Run from the repository's root: `python -m benchmarks.price`. The provider is a server of the tests. It charges input
tokens, cached tokens at a tenth, output tokens and batches at half by its own list, and knows nothing of what Evalflows
records: both must say the same. In batches the calls must cost at most .52 of what they cost directly.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.arguments import new_parser
from benchmarks.own_server import own_server
from evalflows.specs.experiment import ExperimentSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

EXAMPLES, SMALLEST, WANTED = 1_000, 20, 0.52

WAYS: dict[str, tuple[str, bool, str | None]] = {
    "direct": ("direct", False, None),
    "with beginnings from a cache": ("direct", True, None),
    "in batches": ("batch", False, None),
    "judges in a bundle": ("direct", False, "judges"),
    "all of these": ("batch", True, "judges"),
}
"""How calls are sent, whether the provider keeps the beginnings of prompts, and the judges' bundle."""

PRICES = {
    "usd_per_million_input_tokens": 1.0,
    "usd_per_million_output_tokens": 4.0,
    "usd_per_million_cached_tokens": 0.1,
}
RUBRIC = "An answer is good if it names the product, the step and the place where it is found. " * 60
"""About 1,200 tokens, as rubrics with worked examples have."""
TICKET = "The lamp went out after the update, and neither the switch nor the app turns it on again. " * 40
"""About 900 tokens that each answer and each judgement is about."""
CHARS_A_TOKEN, KEPT_CHARS = 4, 4096
HALF = 0.5


class Provider:
    """Answers, and charges: what it has charged for direct calls and for those in batches, in USD."""

    def __init__(self, *, has_cache: bool) -> None:
        from batch_endpoint import structured  # of the tests

        self._answer, self._has_cache = structured, has_cache
        self._beginnings: set[str] = set()
        self.direct_usd = self.batch_usd = 0.0
        self.is_batch = False

    def __call__(self, request: dict[str, Any]) -> Any:
        reply = self._answer(request)
        text = "".join(str(message["content"]) for message in request["messages"])
        beginning = text[:KEPT_CHARS]
        into, out = len(text) // CHARS_A_TOKEN, 40
        cached = 0
        if self._has_cache and len(text) >= KEPT_CHARS:
            cached = KEPT_CHARS // CHARS_A_TOKEN if beginning in self._beginnings else 0
            self._beginnings.add(beginning)
        reply.body["usage"] = {
            "prompt_tokens": into,
            "completion_tokens": out,
            "total_tokens": into + out,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        usd = ((into - cached) * 1.0 + cached * 0.1 + out * 4.0) / 1e6
        if self.is_batch:
            self.batch_usd += HALF * usd
        else:
            self.direct_usd += usd
        return reply


def spec(base_url: str, count: int, mode: str, bundle: str | None) -> ExperimentSpec:
    connection = {"kind": "endpoint", "base_url": base_url, "model": "m", "batch": {"poll_s": 0.2}, **PRICES}
    targets = [
        {"kind": "chat", "name": name, "connection": "m", "user": f"{name}: {{question}}\n{{ticket}}"}
        for name in ("plain", "brief")
    ]
    judges = [
        {"use": "rubric", "name": name, "connection": "m", "args": {"rubric": f"{name}. {RUBRIC}"}, "bundle": bundle}
        for name in ("helpful", "complete")
    ]
    pairwise = {"use": "pairwise_preference", "connection": "m", "args": {"criteria": {"useful": RUBRIC}}}
    rows = [
        {
            "id": f"e{n}",
            "inputs": {"question": f"How do I change setting {n} of device {n % 37}?", "ticket": f"{n}: {TICKET}"},
        }
        for n in range(count)
    ]
    return ExperimentSpec.model_validate(
        {
            "name": f"price of {bundle or mode}",
            "mode": mode,
            "use_cache": False,
            "dataset": {"rows": rows},
            "connections": {"m": connection},
            "targets": targets,
            "evaluators": judges,
            "compare": {"evaluators": [pairwise]},
        }
    )


@contextmanager
def served(provider: Provider) -> Iterator[str]:
    from batch_endpoint import BatchEndpoint, serve_batches

    endpoint = BatchEndpoint(answer=provider)
    endpoint.before = lambda what: setattr(provider, "is_batch", not what.startswith("POST /v1/chat"))
    with serve_batches(endpoint):
        yield endpoint.base_url


def parse_arguments() -> Namespace:
    return new_parser("price", __doc__).parse_args()


def main() -> None:
    arguments = parse_arguments()
    count, ways = (SMALLEST, [*WAYS][::2]) if arguments.smallest else (EXAMPLES, [*WAYS])
    with own_server():
        from evalflows import run
        from evalflows.store import connect

        figures: dict[str, float] = {}
        for way in ways:
            mode, has_cache, bundle = WAYS[way]
            provider = Provider(has_cache=has_cache)
            with served(provider) as base_url:
                run(spec(base_url, count, mode, bundle))
            charged = provider.direct_usd + provider.batch_usd
            with connect() as catalog:
                newest = "(select max(started_at) from experiments)"
                query = f"select sum(cost_usd), count(*) from calls where started_at >= {newest}"
                recorded, calls = catalog.execute(query).fetchall()[0]
            figures[way] = charged
            print(f"{way:30} {calls:6} calls  {charged:.4f} USD charged, {recorded:.4f} recorded")
    share = figures["in batches"] / figures["direct"]
    print(json.dumps({way: round(usd / figures["direct"], 3) for way, usd in figures.items()}))
    if share > WANTED and not arguments.smallest:
        raise SystemExit(f"in batches: got {share:.2f} of the direct cost, wanted at most {WANTED}")


if __name__ == "__main__":
    main()
