"""Three rules over 100,000 recorded answers, against a bare Python loop over the same Parquet file.

Run from the repository's root: `python -m benchmarks.rules`. Ours is a whole run: the dataset frozen, every answer and
every score a row with its status, version and time, sealed and weighed. The loop reads the file, calls the same three
functions, and writes one Parquet file of example, metric and value. They take turns. Wanted: at most 3 times as long,
in the median.
"""

import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evalflows import evaluators
from evalflows.evaluators.score import normalise

ROWS, PAIRS, WANTED = 100_000, 3, 3.0
RULES: dict[str, dict[str, Any]] = {
    "numeric_closeness": {},
    "keyword_safety": {"blocked": ["password", "social security number", "kill"]},
    "edit_similarity": {},
}
WORDS = (
    *("the", "total", "of", "your", "order", "comes", "to", "and", "is", "due", "within", "days", "after", "we"),
    *("have", "sent", "it", "by", "mail", "to", "you", "please"),
)


def answers(rows: int) -> list[dict[str, Any]]:
    """Questions with a reference and an answer of some sixty words, of which three in four give the right number."""
    draw = random.Random(7)
    made = []
    for number in range(rows):
        text = " ".join(draw.choices(WORDS, k=60))
        total = number if draw.random() < 0.75 else number + 1
        question, reference = f"What is the total of order {number}?", " ".join(draw.choices(WORDS, k=60))
        made.append(
            {"id": f"q{number}", "question": question, "reference": f"{reference} {number}", "said": f"{text} {total}"}
        )
    return made


def bare(path: Path, to: Path) -> float:
    """Seconds of a loop that a person would write."""
    functions = [(name, getattr(evaluators, name), settings) for name, settings in RULES.items()]
    began = time.perf_counter()
    found: dict[str, list[Any]] = {"id": [], "metric": [], "value": [], "comment": []}
    for row in pq.read_table(path).to_pylist():
        outputs, reference = {"answer": row["said"]}, {"answer": row["reference"]}
        for name, function, settings in functions:
            asked = {"reference_outputs": reference} if name != "keyword_safety" else {}
            (score,) = normalise(function(outputs=outputs, **asked, **settings), name)
            for column, value in zip(found, (row["id"], name, score.value, score.comment), strict=True):
                found[column].append(value)
    pq.write_table(pa.table(found), to, compression="zstd")
    return time.perf_counter() - began


def ours(path: Path) -> float:
    from evalflows import run
    from evalflows.specs import ExperimentSpec

    spec = ExperimentSpec.model_validate(
        {
            "name": "rules",
            "dataset": {
                "path": str(path),
                "columns": {"inputs": ["question"], "reference_outputs": {"answer": "reference"}, "metadata": ["said"]},
            },
            "targets": [{"kind": "recorded", "column": "said"}],
            "evaluators": [{"use": name, "args": settings} for name, settings in RULES.items()],
        }
    )
    began = time.perf_counter()
    run(spec)
    return time.perf_counter() - began


def check(folder: Path) -> None:
    """Both have found the same."""
    from evalflows.store import connect

    with connect(folder / "store") as catalog:
        query = "select metric, avg(value), count(*) from {} where {} group by all order by all"
        theirs = catalog.execute(query.format(f"read_parquet('{folder}/bare.parquet')", "true")).fetchall()
        mine = catalog.execute(query.format("scores", "experiment_id = (select max(experiment_id) from experiments)"))
        assert [(m, round(v, 9), n) for m, v, n in theirs] == [(m, round(v, 9), n) for m, v, n in mine.fetchall()]
    assert sum(n for _, _, n in theirs) == 3 * ROWS


def measure(folder: Path) -> float:
    path = folder / "answers.parquet"
    pq.write_table(pa.Table.from_pylist(answers(ROWS)), path, compression="zstd")
    ratios = []
    for pair in range(PAIRS):
        theirs, mine = bare(path, folder / "bare.parquet"), ours(path)
        ratios.append(mine / theirs)
        print(f"pair {pair + 1}: bare {theirs:.2f} s   ours {mine:.2f} s   ratio {ratios[-1]:.2f}", flush=True)
    check(folder)
    return median(ratios)


if __name__ == "__main__":
    import logging
    import os

    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as name:
        os.environ |= {"EVALFLOWS_STORE": f"{name}/store", "EVALFLOWS_HOME": f"{name}/home"}
        logging.disable(logging.INFO)
        ratio = measure(Path(name))
    verdict = "ok" if ratio <= WANTED else f"MORE THAN {WANTED}"
    print(f"{ROWS:,} answers x {len(RULES)} rules: median ratio {ratio:.2f}  {verdict}")
    sys.exit(ratio > WANTED)
