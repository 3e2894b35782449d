"""A store in S3 against the same one in a folder: 300 sealed files, and what the first and the next query take.

Run from the repository's root: `python -m benchmarks.object_store`. The server is SeaweedFS on this machine, so network
and distance cost nothing here. The first query copies the files to the local mirror, each next one lists the store.
"""

import os
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.append("tests/support")
from s3_server import BUCKET, s3_server

from benchmarks.arguments import new_parser
from evalflows.store.records import JudgementRow
from evalflows.store.store import Store

FILES, SMALLEST, ROWS, TIMES = 300, 3, 50, 5
QUERY = "select count(*), avg(value) from staging.scores"


def fill(store: Store, files: int) -> float:
    """Seal the scores of so many experiments. Return the seconds that this takes."""
    begun = time.perf_counter()
    for number in range(files):
        owner = f"exp-{number}"
        rows = [
            JudgementRow(
                judgement_id=f"{owner}-{row}",
                experiment_id=owner,
                subject_kind="run",
                subject_id=f"{owner}-{row}",
                evaluator="exact",
                evaluator_version="v1",
                metric="exact",
                status="scored",
                value=float(row % 2),
            )
            for row in range(ROWS)
        ]
        store.publish("judgements", owner, rows)
    return time.perf_counter() - begun


def seconds(query: Callable[[], object]) -> float:
    begun = time.perf_counter()
    query()
    return time.perf_counter() - begun


def parse_arguments() -> Namespace:
    return new_parser("object_store", __doc__).parse_args()


def main() -> None:
    files = SMALLEST if parse_arguments().smallest else FILES
    with tempfile.TemporaryDirectory() as name, s3_server(Path(name) / "server") as server:
        os.environ.update(server.environment | {"EVALFLOWS_HOME": f"{name}/home"})
        in_folder, on_s3 = Store(Path(name) / "folder"), Store(f"s3://{BUCKET}/benchmark")
        filled = fill(in_folder, files), fill(on_s3, files)
        results = in_folder.query(QUERY), on_s3.query(QUERY)
        assert results[0] == results[1], results
        shutil.rmtree(on_s3.filesystem.mirror.folder)
        first = seconds(lambda: on_s3.query(QUERY))
        print(f"{files} sealed files of {ROWS} rows, seconds; SeaweedFS on this machine")
        folder = median(seconds(lambda: in_folder.query(QUERY)) for _ in range(TIMES))
        following = median(seconds(lambda: on_s3.query(QUERY)) for _ in range(TIMES))
        rows = (("writing", *filled), ("first query", folder, first), ("next queries", folder, following))
        print(f"{'':14}{'folder':>8}{'S3':>8}{'ratio':>8}")
        for what, in_a_folder, in_s3 in rows:
            print(f"{what:14}{in_a_folder:8.3f}{in_s3:8.3f}{in_s3 / in_a_folder:8.1f}")


if __name__ == "__main__":
    main()
