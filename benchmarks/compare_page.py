"""What the Compare page costs with 2,000 examples, 4 candidates and 3 metrics: at the server, and to paint.

Run from the repository's root: `python -m benchmarks.compare_page`. Wanted, once the statistics are known: 300 ms at
the server, and 1 s to the first paint with content in Chromium.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.arguments import new_parser
from evalflows.analysis.differences import MetricReader, estimate_rows
from evalflows.dashboard.compare import IN_PAGE
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.records import ExperimentRow, JudgementRow, OutputRow, derived_id, to_json
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.store import Store

WANTED_MS, WANTED_PAINT_MS = 300, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is compared, how often a page is asked for, and how often it is painted."""

    examples: int = 2_000
    candidates: int = 4
    times: int = 9
    paints: int = 3


SMALLEST = Size(examples=60, candidates=1, times=2, paints=1)

METRICS = ("exact_match", "helpful", "similarity")
TEXT = "the refund is paid within five days of the return to your card or account please ask support"
WORDS = TEXT.split()
START = datetime(2026, 1, 1, tzinfo=UTC)

rng = np.random.default_rng(7)


def text(words: int = 60) -> str:
    return " ".join(rng.choice(WORDS, words))


def fill(store: Store, size: Size) -> list[str]:
    """Write a baseline and its candidates as finished runs leave them; return their ids, the baseline's first."""
    items = [
        {"id": f"q{place}", "inputs": {"question": text(12)}, "outputs": {"answer": text(20)}, "split": "test"}
        for place in range(size.examples)
    ]
    examples = to_examples(enumerate(items, start=1), "rows")
    snapshot = freeze(store, examples, name="questions", source="rows")
    ids = [one.example_id for one in examples]
    return [_experiment(store, place, snapshot, ids) for place in range(size.candidates + 1)]


def _experiment(store: Store, place: int, snapshot: str, examples: list[str]) -> str:
    spec = ExperimentSpec.model_validate(
        {
            "name": f"support-{place}",
            "dataset": {"rows": [{"id": "q0", "inputs": "q0?"}]},
            "targets": [{"kind": "python", "name": f"bot-{place}", "function": "bot:answer"}],
        }
    )
    row = ExperimentRow(
        experiment_id=f"exp-{place}",
        run_group=f"group-{place}",
        name=f"support-{place}",
        dataset_name="questions",
        snapshot_id=snapshot,
        n_examples=len(examples),
        repetitions=1,
        chunk_size=250,
        target=f"bot-{place}",
        target_kind="python",
        target_version=f"v{place}",
        evaluators="[]",
        spec=spec.model_dump_json(),
        evalflows_version="0",
        state="completed",
        started_at=START + timedelta(days=place),
        ended_at=START + timedelta(days=place, minutes=9),
    )
    store.publish("experiments", row.experiment_id, [row])
    store.publish("outputs", row.experiment_id, [_output(row, example) for example in examples])
    store.publish("judgements", row.experiment_id, _scores(row, examples, 0.6 + 0.02 * place))
    store.publish("estimates", row.experiment_id, estimate_rows(MetricReader(store), row, spec))
    return row.experiment_id


def _output(row: ExperimentRow, example: str) -> OutputRow:
    answer = text()
    return OutputRow(
        run_id=derived_id(row.experiment_id, example, 0),
        experiment_id=row.experiment_id,
        example_id=example,
        repetition=0,
        outputs=to_json({"answer": answer}),
        length=len(answer),
        status="ok",
        latency_s=float(rng.gamma(2, 0.5)),
        tokens_in=100,
        tokens_out=80,
        cost_usd=0.001,
        calls=1,
    )


def _scores(row: ExperimentRow, examples: list[str], rate: float) -> Iterator[JudgementRow]:
    for example in examples:
        run = derived_id(row.experiment_id, example, 0)
        drawn = float(rng.random() < rate), round(float(rng.beta(4 * rate, 1.6)), 1), float(rng.random())
        for metric, value in zip(METRICS, drawn, strict=True):
            failed = rng.random() < 0.01
            yield JudgementRow(
                judgement_id=derived_id(run, None, metric, "v1"),
                subject_kind="run",
                subject_id=run,
                run_id=run,
                experiment_id=row.experiment_id,
                example_id=example,
                repetition=0,
                metric=metric,
                value=None if failed else value,
                comment=text(15),
                status="failed" if failed else "scored",
                error="the judge gave no verdict" if failed else None,
                data_type="BOOLEAN" if metric == "exact_match" else "NUMERIC",
                evaluator=metric,
                evaluator_version="v1",
            )


@contextmanager
def served(root: Path) -> Iterator[str]:
    """A dashboard in a process of its own; its address."""
    command = [sys.executable, "-m", "evalflows.cli.main", "dashboard", "--port", "0"]
    environment = os.environ | {"EVALFLOWS_STORE": str(root)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            server.terminate()


def fetched(address: str) -> tuple[float, int]:
    """Return the milliseconds until the whole page was there, and its size in bytes."""
    began = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        size = len(answer.read())
    return 1000 * (time.perf_counter() - began), size


def measure_server(address: str, pages: dict[str, str], times: int) -> None:
    """Print what each page takes, made again each time: at another address, as pages are kept."""
    first, _ = fetched(address)
    print(f"{'the first time, with the statistics':<44} {first:7.0f} ms")
    for name, query in pages.items():
        taken, sizes = zip(*(fetched(f"{address}{query}&made={number}") for number in range(times)), strict=True)
        worst = max(taken[1:])
        verdict = "ok" if worst <= WANTED_MS else f"MORE THAN {WANTED_MS}"
        print(
            f"{name:<44} {median(taken[1:]):7.0f} ms   slowest {worst:5.0f} ms   {sizes[0] / 1000:5.0f} kB  {verdict}"
        )


async def painted(address: str) -> float:
    """Return the milliseconds to the first paint with content in a new, headless Chromium."""
    import websockets

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
        process = await asyncio.create_subprocess_exec(
            "chromium", *flags, f"--user-data-dir={folder}", "about:blank", stderr=asyncio.subprocess.PIPE
        )
        try:
            assert process.stderr is not None
            port = ""
            while not (found := re.search(r"ws://[^:]+:(\d+)/", port)):
                port = (await process.stderr.readline()).decode()
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/json") as answer:
                tab = next(one for one in json.load(answer) if one["type"] == "page")
            async with websockets.connect(tab["webSocketDebuggerUrl"], max_size=None) as socket:
                await _called(socket, 1, "Page.navigate", url=address)
                for number in range(2, 100):
                    await asyncio.sleep(0.1)
                    said = await _called(socket, number, "Runtime.evaluate", expression=_PAINT)
                    if (at := said["result"].get("value")) is not None:
                        return float(at)
            raise TimeoutError("chromium painted nothing in 10 s")
        finally:
            process.terminate()
            await process.wait()


_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


async def _called(socket: Any, number: int, method: str, **parameters: Any) -> Any:
    await socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
    while (said := json.loads(await socket.recv())).get("id") != number:
        pass
    return said["result"]


def measure_paint(address: str, times: int) -> None:
    if shutil.which("chromium") is None:
        print("no chromium: not painted")
        return
    taken = [asyncio.run(painted(address)) for _ in range(times)]
    verdict = "ok" if median(taken) <= WANTED_PAINT_MS else f"MORE THAN {WANTED_PAINT_MS}"
    what = "first paint with content, in Chromium"
    print(f"{what:<44} {median(taken):7.0f} ms   slowest {max(taken):5.0f} ms  {verdict}")


def measure(root: Path, size: Size) -> None:
    baseline, *candidates = fill(Store(root), size)
    filled = f"{size.examples:,} examples, {size.candidates} candidates, {len(METRICS)} metrics"
    print(f"{filled}; medians of {size.times - 1}, after one")
    query = f"compare?baseline={baseline}" + "".join(f"&candidate={one}" for one in candidates)
    with served(root) as server:
        address = f"{server.rstrip('/')}/{query}"
        measure_server(
            address,
            {
                "first page": "",
                "first page, with word differences": "&words=1",
                "one metric, regressed": "&metric=helpful&change=regressed",
                "search": "&q=refund",
                "last page, by position": f"&sort=position&page={-(-size.examples // IN_PAGE)}",
            },
            size.times,
        )
        measure_paint(address, size.paints)


def parse_arguments() -> Namespace:
    return new_parser("compare_page", __doc__).parse_args()


def main() -> None:
    size = SMALLEST if parse_arguments().smallest else Size()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder) / "store", size)


if __name__ == "__main__":
    main()
