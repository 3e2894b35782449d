"""The receiver on one core: spans per second, memory, and what is lost when it is killed.

Run from the repository's root: `python -m benchmarks.receiver`. Both the receiver and the baseline, an application on
starlette and uvicorn that parses each request and stores nothing, run on one core, and the same clients on another.
Ours counts a span when it is in the store. Goals: 5,000 spans a second, and as much memory for ten times as many spans.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from urllib.request import urlopen

sys.path.append("tests/support")
from receiving import Batches, Load, kill_repeatedly, receiving

SPANS, FEW, PER_REQUEST, PAIRS, WANTED, KILLS = 100_000, 50_000, 512, 3, 5_000, 20

BASELINE = """
import socket, uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest as Request
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def traces(request):
    Request.FromString(await request.body())
    return Response(b"", media_type="application/x-protobuf")
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = Starlette(routes=[Route("/v1/traces", traces, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
"""


def on_core(number: int) -> list[str]:
    return ["taskset", "--cpu-list", str(number)]


@contextmanager
def baseline() -> Iterator[str]:
    with subprocess.Popen([*on_core(0), sys.executable, "-c", BASELINE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def rate_of_baseline(batches: Batches, spans: int) -> float:
    load = Load(batches, keep_ids=False)
    with baseline() as url:
        began = time.perf_counter()
        with load.on(url, most=spans):
            pass
        return load.n_answered / (time.perf_counter() - began)


def ours(batches: Batches, spans: int, store: Path) -> tuple[float, float, float]:
    """Spans answered and spans stored per second, and the largest memory of the process in MB."""
    load = Load(batches, keep_ids=False)
    with receiving(store, prefix=on_core(0)) as running:
        began = time.perf_counter()
        with load.on(running.url, most=spans):
            pass
        answered = load.n_answered / (time.perf_counter() - began)
        while pending(running.url):
            time.sleep(0.05)
        stored = load.n_answered / (time.perf_counter() - began)
        status = Path(f"/proc/{running.process.pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return answered, stored, peak / 1024


def pending(url: str) -> int:
    """The bytes that the receiver has accepted and not stored yet."""
    with urlopen(f"{url}/health") as answer:
        return int(json.load(answer)["pending_bytes"])


def speed(folder: Path) -> None:
    batches = Batches(PER_REQUEST)
    print(f"{SPANS:,} spans of {len(batches.body) // PER_REQUEST:,} bytes, {PER_REQUEST} per request; spans per second")
    print("pair   baseline   answered   stored   baseline / stored   against 5,000   memory")
    for number in range(PAIRS):
        bare = rate_of_baseline(batches, SPANS)
        answered, stored, peak = ours(batches, SPANS, folder / f"speed{number}")
        print(
            f"{number + 1}   {bare:11,.0f} {answered:10,.0f} {stored:8,.0f} {bare / stored:19.2f} "
            f"{stored / WANTED:15.2f} {peak:8.0f} MB",
            flush=True,
        )


def memory(folder: Path) -> None:
    batches = Batches(PER_REQUEST)
    few, many = (ours(batches, n, folder / f"memory{n}")[2] for n in (FEW, 10 * FEW))
    print(f"memory: {few:.0f} MB for {FEW:,} spans, {many:.0f} MB for {10 * FEW:,}: ratio {many / few:.2f}")


def kills(folder: Path) -> None:
    draw = random.Random(9)
    kept = kill_repeatedly(folder / "killed", KILLS, Load(Batches(64)), [draw.uniform(0.3, 2.0) for _ in range(KILLS)])
    print(f"kill -9, {KILLS} times: " + ", ".join(f"{name} {value:,}" for name, value in asdict(kept).items()))


if __name__ == "__main__":
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as name:
        for measure in (speed, memory, kills) if len(sys.argv) == 1 else (globals()[word] for word in sys.argv[1:]):
            measure(Path(name))
