"""A dashboard in a process of its own or in a thread, and the addresses of its pages."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from evalflows.dashboard.app import application
from evalflows.dashboard.links import Links, query_text
from evalflows.serving import listen, url_of
from evalflows.store import connect
from evalflows.store.store import Store


@contextmanager
def dashboard(store: Path) -> Iterator[str]:
    """Serve the dashboard of a store in a thread, and yield its URL. It ends with the block."""
    with served(application(Store(store))) as url:
        yield url


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The same for an application."""
    with listen("127.0.0.1", 0, has_token=False) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield url_of("127.0.0.1", listener)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def started(
    store: Path, *arguments: str, program: Sequence[str] = ("-m", "evalflows.cli.main")
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve it in a process, as the command does; yield the process and the URL."""
    process = subprocess.Popen(
        [sys.executable, "-P", *program, "dashboard", "--port", "0", *arguments],
        env=os.environ | {"EVALFLOWS_STORE": str(store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert "http://" in first, first + process.stdout.read()
    try:
        yield process, "http://" + first.partition("http://")[2].strip()
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.stdout.read()
        process.wait(timeout=30)
    assert "Traceback" not in said, said


def addresses(store: Path) -> dict[str, str]:
    """Return the address of each kind of page that the store has something for, by the page's name."""
    links = Links()
    with connect(store) as catalog:
        experiments = [row for (row,) in catalog.sql("select experiment_id from experiments order by 1").fetchall()]
        examples = catalog.sql("select experiment_id, example_id from outputs order by 1, 2").fetchall()
        comparisons = catalog.sql("select comparison_id from comparison_sets").fetchall()
        decisions = catalog.sql("select decision_id from decisions").fetchall()
        judges = catalog.sql("select distinct evaluator from judge_labels order by 1").fetchall()
        evaluations = catalog.sql("select distinct name from incidents").fetchall()
        traces = catalog.sql("select trace_id from traces order by 1 limit 1").fetchall()
        metrics = catalog.sql(
            "select distinct metric from scores where experiment_id is not null order by 1"
        ).fetchall()
        modes = catalog.sql("select distinct mode from mode_items").fetchall()
        incidents = catalog.sql("select incident_id from incidents").fetchall()
        datasets = catalog.sql(
            "select name, example_id, coalesce(parent_snapshot_id, snapshot_id) "
            "from dataset_versions v join examples using (snapshot_id) order by v.recorded_at desc, position limit 1"
        ).fetchall()
    names = (
        "home",
        "experiments",
        "datasets",
        "compare",
        "pairwise",
        "decisions",
        "over-time",
        "judges",
        "two-judges",
        "modes",
        "production",
        "review",
    )
    found = {name: f"/{name}" for name in names}
    found |= {"experiment": f"{links.experiment(experiments[0])}", "example": f"{links.example(*examples[0])}"}
    found["two experiments"] = f"{links.compare(*experiments[:2])}"
    found["one example of two"] = f"{links.page('compare', 'example')}?" + query_text(
        baseline=experiments[0], candidate=experiments[1], id=examples[0][1]
    )
    for name, link, rows in (
        ("comparison", links.comparison, comparisons),
        ("decision", links.decision, decisions),
        ("judge", links.judge, judges),
        ("mode", lambda mode: links.page("modes", mode), modes),
        ("incident", links.incident, incidents),
        ("trace evaluation", links.evaluation, evaluations),
        ("trace", links.trace, traces),
    ):
        found |= {name: f"{link(rows[0][0])}"} if rows else {}
    for name, example, before in datasets:
        found["dataset"] = f"{links.dataset(name, against=before)}"
        found["example of a dataset"] = f"{links.dataset_example(name, example)}"
        found["drafts"] = f"{links.page('review-drafts', dataset=name)}"
    found["traces"] = "/production/traces"
    found["review of traces"] = "/review?subject=traces"
    if traces:
        found["trace to label"] = "/review/traces?metric=helpful&by=ann&kind=yes_no"
    found["review's start"] = f"{links.page('review', subject=experiments[0], metric=metrics[0][0])}"
    found["item to label"] = f"{links.page('review', experiments[0], metric=metrics[0][0], by='ann', reference='yes')}"
    return found
