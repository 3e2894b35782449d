"""The worker side of `process.py`: read a request from stdin, and write its answer to stdout.

It ends when its stdin closes, and so with the process that started it. Whatever else is printed goes to stderr.
"""

import json
import os
import sys
import threading
from dataclasses import fields

from evalflows.data_checks.process import CheckRequest, PageRequest, ResultRequest, from_json
from evalflows.specs.errors import InputError, StorageError
from evalflows.store.records import CheckRow
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

OF_THE_RUN = ("flow_run_id", "recorded_at")
"""Columns that the process of the run sets."""


def main() -> None:
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        request = sys.stdin.readline()
        threading.Thread(target=_end_with_stdin, daemon=True).start()
        answers.write(answer(request))
    os._exit(0)  # taking down what was imported would take a second more


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def answer(request: str) -> str:
    """Return the checks or pages that a request asks for, or the error for which there are none, as JSON."""
    try:
        wanted = from_json(request)
        if isinstance(wanted, PageRequest):
            return json.dumps({"pages": _pages(wanted)})
        checks = _of_results(wanted) if isinstance(wanted, ResultRequest) else _of_snapshot(wanted)
    except (InputError, StorageError) as error:
        return json.dumps({"error": type(error).__name__, "message": str(error)})
    return json.dumps({"checks": [_columns(check) for check in checks]})


# Imports are late below: the request is read first.


def _of_snapshot(wanted: CheckRequest) -> list[CheckRow]:
    from evalflows.data_checks.checks import run_expectations

    return run_expectations(load_snapshot(Store(wanted.root), wanted.snapshot), wanted.own, wanted.batch)


def _of_results(wanted: ResultRequest) -> list[CheckRow]:
    from evalflows.data_checks.checks import run_result_checks

    store, checks = Store(wanted.root), []
    for identity, batch in wanted.batches.items():
        (experiment,) = store.read("experiments", identity)
        checks += run_result_checks(store, experiment, batch)
    return checks


def _pages(wanted: PageRequest) -> dict[str, str]:
    from evalflows.data_checks.checks import page_of

    store = Store(wanted.root)
    return {batch: page_of(title, store.read("checks", batch)) for batch, title in wanted.titles.items()}


def _columns(check: CheckRow) -> dict[str, object]:
    return {field.name: getattr(check, field.name) for field in fields(check) if field.name not in OF_THE_RUN}


if __name__ == "__main__":
    main()
