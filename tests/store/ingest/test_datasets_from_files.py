"""Datasets from files: columns, formats, names and errors."""

import json
from pathlib import Path

import pytest
from loaded_datasets import Row, load, numbered, problem

from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.specs.reference import refer
from evalflows.store.ingest.datasets import load_dataset
from evalflows.store.parquet import Store
from evalflows.store.snapshots import snapshot_id

CSV = b'number,question,reply,topic\n1,"Why, oh why?",So.,sky\n2,"Who\nknows?",,\n'


@pytest.fixture
def faq(tmp_path: Path) -> Path:
    path = tmp_path / "faq.csv"
    path.write_bytes(CSV)
    return path


COLUMNS = {"inputs": "question", "reference_outputs": {"answer": "reply"}, "id": "number"}


def test_columns_map_a_file_of_any_schema_to_examples(store: Store, faq: Path) -> None:
    first, second = load(store, path=str(faq), columns=COLUMNS)
    assert (first.example_id, first.inputs, first.reference_outputs, first.metadata) == (
        "1",
        '{"question":"Why, oh why?"}',
        '{"answer":"So."}',
        '{"topic":"sky"}',
    )
    assert (second.example_id, second.inputs, second.reference_outputs, second.metadata) == (
        "2",
        '{"question":"Who\\nknows?"}',
        None,
        '{"topic":null}',
    )


def test_every_format_gives_the_same_examples(store: Store, tmp_path: Path) -> None:
    rows = [{"inputs": {"q": "Why?", "n": [1, 2]}, "metadata": {"topic": "é"}, "split": "test"}, {"inputs": {"q": "x"}}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    cells = [
        '"{""q"": ""Why?"", ""n"": [1, 2]}","{""topic"": ""é""}",test',
        '"{""q"": ""x""}",,',
    ]
    (tmp_path / "rows.csv").write_text("\r\n".join(["inputs,metadata,split", *cells]), encoding="utf-8-sig")
    found = [snapshot_id(load(store, path=str(tmp_path / f"rows.{suffix}"))) for suffix in ("jsonl", "json", "csv")]
    assert set(found) == {snapshot_id(load(store, rows=rows))}


@pytest.mark.parametrize(
    ("content", "columns", "said"),
    [
        (b"", None, "FILE: got no rows, wanted at least one example"),
        (b"inputs,outputs\n", None, "FILE: got no rows, wanted at least one example"),
        (CSV, None, "FILE:2: no inputs: got number, question, reply, topic, wanted 'inputs' (or `columns`, for rows"),
        (b"inputs,note\nx,y\n", None, "FILE:2: got the field 'note', wanted only inputs, input, "),
        (CSV, {"inputs": "frage"}, "FILE:2: no column 'frage', got number, question, reply, topic"),
        (CSV, {"inputs": "question", "id": "nr"}, "FILE:2: no column 'nr', got number, question, reply, topic"),
        (b"id,inputs\n1,a\n2,b\n1,c\n", None, "FILE:4: duplicate id '1', first in row 2"),
        (b"inputs,metadata\na,{\n", None, "FILE:2: metadata: not JSON: "),
        (b"inputs,outputs,expected_output\na,b,c\n", None, "FILE:2: got both 'outputs' and 'expected_output'"),
        (b"inputs\na\n\n,\n", None, "FILE:4: got 2 cells, wanted 1"),
        (b"inputs,split\na,x\n,y\n", None, "FILE:3: no inputs: got inputs, split, wanted"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_errors_in_a_file_name_the_line(
    store: Store, tmp_path: Path, content: bytes, columns: object, said: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    assert problem(store, path=str(path), columns=columns).replace(str(path), "FILE").startswith(said)


@pytest.mark.parametrize(
    ("spec", "name", "source"),
    [
        ({}, "faq", "FAQ"),
        ({"name": "ours"}, "ours", "FAQ"),
    ],
)
def test_a_dataset_takes_its_name_from_the_file_by_default(
    store: Store, faq: Path, spec: dict[str, str], name: str, source: str
) -> None:
    found = load_dataset(store, DatasetSpec.model_validate({"path": str(faq), "columns": COLUMNS} | spec))
    assert (found.name, found.source.replace(str(faq), "FAQ")) == (name, source)


def test_datasets_from_rows_and_functions_have_no_default_name(store: Store) -> None:
    def some() -> list[Row]:
        return numbered(1)

    for spec, source in (({"rows": numbered(1)}, "rows"), ({"function": refer(some)}, refer(some))):
        found = load_dataset(store, DatasetSpec.model_validate(spec))
        assert (found.name, found.source) == (None, source)


def test_an_environment_variable_in_the_path_is_resolved_for_the_name(
    store: Store, faq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAQ", str(faq))
    assert load_dataset(store, DatasetSpec.model_validate({"path": "${FAQ}", "columns": COLUMNS})).name == "faq"


@pytest.mark.parametrize("field", ["id", "split", "cluster"])
def test_text_that_utf8_cannot_encode_is_refused_with_its_line(store: Store, tmp_path: Path, field: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"inputs": 1, "{field}": "\\ud83d"}}', encoding="utf-8")
    with pytest.raises(InputError, match=r"rows\.jsonl:1: "):
        load_dataset(store, DatasetSpec(path=str(path))).keep(store)
