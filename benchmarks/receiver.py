"""The receiver on one core: spans per second, memory, and what is lost when it is killed.

Run from the repository's root: `python -m benchmarks.receiver [speed] [memory] [kills]`. Both the receiver and the
baseline, an application on starlette and uvicorn that parses each request and stores nothing, run on one core, and the
same clients on another. Ours counts a span when it is in the store. Goals: 5,000 spans a second, and as much memory for
ten times as many spans.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import urlopen

sys.path.append("tests/support")
from receiving import Batches, Load, kill_repeatedly, receiving

from benchmarks.arguments import new_parser

PER_REQUEST, WANTED = 512, 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The spans and pairs of the measure of speed, how often it is killed, and the spans of the measure of memory."""

    spans: int = 100_000
    pairs: int = 3
    few: int = 50_000
    kills: int = 20


SMALLEST = Size(spans=1024, pairs=1, few=512, kills=1)

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


def speed(folder: Path, size: Size) -> None:
    batches = Batches(PER_REQUEST)
    span_bytes = len(batches.body) // PER_REQUEST
    print(f"{size.spans:,} spans of {span_bytes:,} bytes, {PER_REQUEST} per request; spans per second")
    print("pair   baseline   answered   stored   baseline / stored   against 5,000   memory")
    for number in range(size.pairs):
        bare = rate_of_baseline(batches, size.spans)
        answered, stored, peak = ours(batches, size.spans, folder / f"speed{number}")
        print(
            f"{number + 1}   {bare:11,.0f} {answered:10,.0f} {stored:8,.0f} {bare / stored:19.2f} "
            f"{stored / WANTED:15.2f} {peak:8.0f} MB",
            flush=True,
        )


def memory(folder: Path, size: Size) -> None:
    batches = Batches(PER_REQUEST)
    few, many = (ours(batches, n, folder / f"memory{n}")[2] for n in (size.few, 10 * size.few))
    print(f"memory: {few:.0f} MB for {size.few:,} spans, {many:.0f} MB for {10 * size.few:,}: ratio {many / few:.2f}")


def kills(folder: Path, size: Size) -> None:
    draw = random.Random(9)
    seconds = [draw.uniform(0.3, 2.0) for _ in range(size.kills)]
    kept = kill_repeatedly(folder / "killed", size.kills, Load(Batches(64)), seconds)
    print(f"kill -9, {size.kills} times: " + ", ".join(f"{name} {value:,}" for name, value in asdict(kept).items()))


MEASURES = {"speed": speed, "memory": memory, "kills": kills}


def parse_arguments() -> Namespace:
    parser = new_parser("receiver", __doc__)
    parser.add_argument("measures", nargs="*", choices=[*MEASURES, []], metavar="MEASURE", help=", ".join(MEASURES))
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as name:
        for measure in arguments.measures or (["speed", "kills"] if arguments.smallest else MEASURES):
            MEASURES[measure](Path(name), SMALLEST if arguments.smallest else Size())


if __name__ == "__main__":
    main()
