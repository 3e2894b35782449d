"""Threads ask a store of real size while a run writes to it: every answer is right, and none fails."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pytest
from real_stores import in_folder, real_store

from benchmarks.doors import WHERE, pages
from benchmarks.real_size import TARGETS, Made
from evalflows.reports.results import results_of
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.values import places_where
from evalflows.store.query_process import QueryProcesses
from evalflows.store.sql import ask, connect, select_from
from evalflows.store.store import Store

pytestmark = pytest.mark.slow

THREADS, SAMPLE = 3, 50
QUERY = """select metric, count(*), round(sum(value), 6) from item_scores where experiment_id = '{}'
           group by all order by all"""
RUN = f"""import sys; sys.path[:0] = {[path for path in sys.path if path]}
from real_stores import in_folder, run
with in_folder("."): run("run", "support.yaml", "--set", "dataset.sample={SAMPLE}")"""


Question = Callable[[], object]


@pytest.fixture
def folder(examples: int, tmp_path: Path) -> Iterator[Path]:
    yield Path(shutil.copytree(real_store(examples), tmp_path / "real"))
    shutil.rmtree(tmp_path / "real")


def questions(store: Store, made: Made, queries: QueryProcesses) -> dict[str, Question]:
    """Return questions on finished experiments, whose answers a run does not change."""
    first, second, *_ = made.experiments
    query = QUERY.format(second)
    shown = pages(store, made)
    patterns = ("/experiments/{id}", "/decisions/{id}", "/production/traces", "/datasets/{name:path}")

    def connected(*, restricted: bool) -> object:
        with connect(store.layout.root, restricted=restricted) as catalog:
            return catalog.execute(query).fetchall()

    return {
        "sql": lambda: select_from(store, query).fetchall(),
        "query process": lambda: queries.rows(query),
        "connect": partial(connected, restricted=False),
        "restricted": partial(connected, restricted=True),
        "ask": lambda: ask(store, (query, [])),
        "results": lambda: [(one.metric, one.mean, one.scored) for one in results_of(store, [first, second])],
        "places": lambda: len(places_where(store, made.snapshot, WHERE)),
        "name": lambda: find_experiments(store, second),
        **{pattern: lambda pattern=pattern: len(str(shown[pattern]())) > 1000 for pattern in patterns},
    }


def test_answers_are_right_and_none_fails_while_a_run_writes(folder: Path, examples: int) -> None:
    with in_folder(folder):
        store, made = Store(), Made.of(folder / "store")
        queries = QueryProcesses(store.layout.root, most=4)
        asked = questions(store, made, queries)
        wanted = {name: question() for name, question in asked.items()}
        errors, counts, ended = list[str](), dict.fromkeys(asked, 0), threading.Event()
        run = subprocess.Popen([sys.executable, "-c", RUN])

        def asking(first: int) -> None:
            for name in islice(cycle(asked), first, None):
                if ended.is_set():
                    return
                try:
                    got = asked[name]()
                except Exception as error:
                    errors.append(f"{name}: {type(error).__name__}: {error}")
                else:
                    counts[name] += 1
                    if got != wanted[name]:
                        errors.append(f"{name}: got {str(got)[:200]}, wanted {str(wanted[name])[:200]}")

        with ThreadPoolExecutor(THREADS) as threads:
            done = [threads.submit(asking, 2 * number) for number in range(THREADS)]
            try:
                code = run.wait(timeout=600)
            finally:  # otherwise the threads would ask for ever
                ended.set()
                run.kill()
            for one in done:
                one.result()
        queries.close()
        assert not errors, "\n".join(sorted(errors)[:20])
        assert code == 0 and min(counts.values()) > 0
        assert select_from(store, "select count(*) from outputs").fetchall() == [(TARGETS * (examples + SAMPLE),)]
