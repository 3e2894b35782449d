"""Files of real shapes, changed as tools change them or damaged: read rightly, or refused in one line.

No damage may make examples fewer without a word.
"""

import csv
import gzip
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalflows.specs.errors import InputError
from evalflows.store.file_formats import filled_rows, read_rows

Rows = list[dict[str, Any]]

QUESTIONS = [
    "Why?",
    "Compose a letter,\nthen sign it.",
    'Say "yes"; or [no]',
    "Wo liegt Köln?",
    "東京はどこ",
    "{{name}} asks",
]


def shape(**fields: Callable[[int, str], Any]) -> Rows:
    return [{name: make(n, text) for name, make in fields.items()} for n, text in enumerate(QUESTIONS, start=1)]


def number(n: int, q: str) -> int:
    return n


def words(n: int, q: str) -> str:
    return q


AREA = {"name": "area", "parameters": {"type": "dict", "properties": {"base": {"type": "integer"}}}}
SHAPES = [
    shape(question=words, answer=lambda n, q: f"{q} {n}"),
    shape(id=lambda n, q: f"q{n}", question=words, context=lambda n, q: q if n % 2 else None),
    shape(question_id=lambda n, q: 80 + n, category=lambda n, q: "writing", turns=lambda n, q: [q, f"{n}?"]),
    shape(id=number, messages=lambda n, q: [{"role": "user", "content": q}, {"role": "assistant", "content": "So."}]),
    shape(
        id=lambda n, q: f"simple_{n}",
        question=lambda n, q: [{"role": "user", "content": q}],
        function=lambda n, q: [AREA],
    ),
    shape(
        inputs=lambda n, q: {"question": q, "n": n},
        reference_outputs=lambda n, q: {"answer": q},
        metadata=lambda n, q: {"topic": "a", "tags": [n]},
        split=lambda n, q: "test" if n % 2 else "dev",
    ),
    shape(idx=number, response1=words, response2=lambda n, q: q[::-1], winner=lambda n, q: n % 3),
    shape(task_id=number, reward=lambda n, q: n / 4, tool_calls=lambda n, q: [{"name": "f", "arguments": f'"{q[0]}"'}]),
    shape(question=words, contexts=lambda n, q: [q, q[:2]], ground_truth=words),
    shape(a=number, b=lambda n, q: n * 1.5, right=lambda n, q: n % 2 == 0, note=words),
]


def as_csv(rows: Rows, **how: Any) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, **how)
    writer.writerow(rows[0])
    writer.writerows([*map(cell, row.values())] for row in rows)
    return text.getvalue().encode()


def cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def as_jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_json(rows: Rows) -> bytes:
    return json.dumps(rows, ensure_ascii=False, indent=1).encode()


def as_parquet(rows: Rows) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, compression="none", row_group_size=4)
    return sink.getvalue()


def in_text(change: Callable[[str], str], encoding: str = "utf-8") -> Callable[[bytes], bytes]:
    return lambda content: change(content.decode()).encode(encoding)


HARMLESS: dict[str, list[Callable[[bytes], bytes]]] = {
    "text": [
        lambda content: b"\xef\xbb\xbf" + content,
        in_text(str, "utf-16"),
        in_text(str, "utf-16-le"),
        in_text(str, "utf-32"),
        lambda content: content.rstrip(b"\r\n"),
        lambda content: content + b"\n\n",
    ],
    "csv": [
        lambda content: b"sep=,\r\n" + content,
        in_text(lambda text: text.replace("\r\n", "\n")),
        in_text(lambda text: text.replace("\r\n", ",\r\n")),
        in_text(lambda text: text + "," * text.partition("\r\n")[0].count(",") + "\r\n"),
    ],
    "jsonl": [
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content.replace(b"\n", b"\n\n"),
        lambda content: b"\n".join(json.dumps(json.loads(line), indent=2).encode() for line in content.splitlines()),
        lambda content: json.dumps([*map(json.loads, content.splitlines())]).encode(),
    ],
    "json": [
        lambda content: b'{"version": 1, "examples": ' + content + b"}",
        lambda content: b"\n".join(json.dumps(row).encode() for row in json.loads(content)),
        lambda content: (
            json.dumps({str(n): row for n, row in enumerate(json.loads(content), 1)}).encode()
            if "id" in json.loads(content)[0]
            else content
        ),
        lambda content: (
            json.dumps({name: [row[name] for row in json.loads(content)] for name in json.loads(content)[0]}).encode()
            if "messages" not in json.loads(content)[0]
            else content
        ),
    ],
    "parquet": [],
}


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return the content with one byte changed, removed or added, a piece repeated, or its end cut off."""
    at, end = draw.randrange(len(content)), draw.randrange(1, 40)
    odd = draw.choice(
        [b'"', b"'", b",", b";", b"\n", b"\r", b"\\", b"{", b"]", b"\x00", b"\xff", b"\xe9", b"\t", b" ", b"0"]
    )
    return draw.choice(
        [
            content[:at] + odd + content[at + 1 :],
            content[:at] + odd + content[at:],
            content[:at] + content[at + 1 :],
            content[:at] + content[at : at + end] + content[at:],
            content[:at],
        ]
    )


def is_cut_between_rows(content: bytes, mutated: bytes, form: str) -> bool:
    """Whether a file does not tell that its end is cut off; of CSV also within the last cell."""
    around = content[max(len(mutated) - 1, 0) :][:2]
    return content.startswith(mutated) and (form == "csv" or b"\n" in around or not mutated)


def names_a_place(said: str, form: str) -> bool:
    """Whether a refusal names the row or the byte; else the whole file cannot be read."""
    is_whole = form == "parquet" or said.startswith((": cannot be read", ": is empty", ": has no"))
    return is_whole or bool(re.match(r":\d+: |: (line|row|element|object) \d+: ", said) or re.search("at byte", said))


WRITERS = {"csv": as_csv, "jsonl": as_jsonl, "json": as_json, "parquet": as_parquet}


def expected(rows: Rows, form: str) -> Rows:
    """Return rows as a file of this format says them: cells of CSV are texts, or JSON in columns named for it."""
    if form != "csv":
        return rows
    structured = ("inputs", "reference_outputs", "metadata")
    texts = [{name: value if name in structured else cell(value) for name, value in row.items()} for row in rows]
    return [{n: v if v is None or isinstance(v, dict) else str(v) for n, v in row.items()} for row in texts]


@pytest.mark.parametrize("count", [240, pytest.param(2_000, marks=pytest.mark.soak)])
def test_a_mutated_file_is_read_rightly_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    refused = 0
    for seed in range(count):
        draw = random.Random(seed)
        form, rows = draw.choice([*WRITERS]), draw.choice(SHAPES)
        content, wanted = WRITERS[form](rows), expected(rows, form)
        kinds = HARMLESS[form] + (HARMLESS["text"] if form != "parquet" else [])
        is_damaged = draw.random() < 0.5 or not kinds
        mutated = damaged(content, draw) if is_damaged else draw.choice(kinds)(content)
        path = tmp_path / f"{seed}.{form}"
        if packed := draw.random() < 0.2:
            path = path.with_suffix(f".{form}.gz")
        path.write_bytes(gzip.compress(mutated) if packed else mutated)
        try:
            found = [row for _, row in read_rows(path)]
        except InputError as error:
            assert is_damaged, f"{seed}: {error}"
            said = str(error)
            assert said.startswith(str(path)) and "\n" not in said and len(said) < 600, f"{seed}: {said}"
            assert names_a_place(said.removeprefix(str(path)), form), f"{seed}: {said}"
            refused += 1
            continue
        noted = "skipped" in capsys.readouterr().err
        if not is_damaged:
            assert found == wanted, f"{seed}: {path}"
        elif not is_cut_between_rows(content, mutated, form):
            assert len(found) >= len(wanted) or noted, f"{seed}: {path}"  # a file cut off between rows does not tell
    assert refused > count / 6


def test_rows_of_code_are_counted_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert [*filled_rows(enumerate([{"inputs": None}, {"inputs": "a"}, {}], 1), "rows")] == [(2, {"inputs": "a"})]
    assert capsys.readouterr().err == "evalflows: rows: skipped 2 blank rows, the first at 1\n"
