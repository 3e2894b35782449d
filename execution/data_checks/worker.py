"""The worker side of `process.py`: read a request from stdin, check, and write the checks to stdout.

It ends when its stdin closes, and so with the process that started it. Whatever else is printed goes to stderr.
"""

import json
import os
import sys
import threading
from dataclasses import fields

from evalflows.execution.data_checks.request import CheckRequest
from evalflows.specs.errors import InputError, StorageError
from evalflows.store.parquet import Store
from evalflows.store.records import CheckRow
from evalflows.store.snapshots import load_snapshot

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
    """Return the checks that a request asks for, or the error for which there are none, as JSON."""
    from evalflows.execution.data_checks.expectations import run_expectations  # late: the request is read first

    try:
        wanted = CheckRequest.from_json(request)
        examples = load_snapshot(Store(wanted.root), wanted.snapshot)
        checks = run_expectations(examples, wanted.own, wanted.batch)
    except (InputError, StorageError) as error:
        return json.dumps({"error": type(error).__name__, "message": str(error)})
    return json.dumps({"checks": [_columns(check) for check in checks]})


def _columns(check: CheckRow) -> dict[str, object]:
    return {field.name: getattr(check, field.name) for field in fields(check) if field.name not in OF_THE_RUN}


if __name__ == "__main__":
    main()
