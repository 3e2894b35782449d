"""Convert GPT-4's reviews of the published answers to recorded verdicts, for examples/vicuna80_comparison.yaml.

    EVALFLOWS_PUBLISHED_DATA=… python examples/vicuna80_reviews.py > vicuna80_reviews.jsonl

By default it uses the published review set whose totals are in the announcement of Vicuna. To use another one, name
its folder: `python examples/vicuna80_reviews.py vicuna-7b-20230322-fp16`.
"""

import gzip
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ANNOUNCED = "vicuna-13b-20230322-clean-lang"
"""The announced set: vicuna-13b against the four others."""

NAMES = {"gpt35": "gpt-3.5"}
"""Names of models in examples/vicuna80_comparison.yaml that differ from their file names."""


def verdicts(root: Path, chosen: str = ANNOUNCED) -> Iterator[dict[str, Any]]:
    """Yield one verdict per review, in the order of the files; `root` holds answer/ and review/.

    A review refers to its two answers by their ids, which identify the models.
    """
    models = dict(_models(root / "answer"))
    for path in sorted((root / "review" / chosen).glob("*.jsonl.gz")):
        for review in _rows(path):
            yield {
                "example_id": str(review["question_id"]),
                "first": models[review["answer1_id"]],
                "second": models[review["answer2_id"]],
                "scores": review["score"],
                "comment": review["text"],
            }


def _models(answers: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(answers.glob("*.jsonl.gz")):
        file = path.name.removeprefix("answer_").removesuffix(".jsonl.gz")
        yield from ((answer["answer_id"], NAMES.get(file, file)) for answer in _rows(path))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


if __name__ == "__main__":
    for verdict in verdicts(Path(os.environ["EVALFLOWS_PUBLISHED_DATA"]) / "vicuna80", *sys.argv[1:]):
        print(json.dumps(verdict))
