"""Reading rows from files of every format: names, paths and compression."""

import gzip
import json
from pathlib import Path

import pytest
from row_files import ROWS, as_parquet, problem, rows, write

from evalflows.specs.errors import InputError
from evalflows.store.ingest.file_formats import read_rows, stem

# Any file

CONTENT = {
    ".jsonl": "\n".join(map(json.dumps, ROWS)).encode(),
    ".ndjson": "\n".join(map(json.dumps, ROWS)).encode(),
    ".json": json.dumps(ROWS, indent=2).encode(),
    ".parquet": as_parquet(*ROWS),
}


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("suffix", CONTENT)
def test_the_same_rows_are_read_from_every_format(tmp_path: Path, suffix: str, packed: str) -> None:
    path = write(tmp_path, f"rows{suffix}{packed}", CONTENT[suffix])
    assert rows(path) == ROWS


@pytest.mark.parametrize("name", ["rows.csv", "ROWS.CSV", "rows.csv.gz", "my.rows.csv"])
def test_csv_is_recognized_by_its_suffix(tmp_path: Path, name: str) -> None:
    assert rows(write(tmp_path, name, b'a,b\n1,x\n,"\xc3\xa9\n2"\n')) == [{"a": "1", "b": "x"}, ROWS[1]]


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("rows", "no suffix"),
        ("rows.txt", ".txt"),
        ("rows.xlsx", ".xlsx"),
        ("rows.csv.zip", ".zip"),
        ("rows.gz", "no suffix"),
        ("rows.txt.gz", ".txt"),
        (".csv", "no suffix"),
    ],
)
def test_other_suffixes_are_refused_with_the_known_ones_listed(tmp_path: Path, name: str, got: str) -> None:
    said = problem(write(tmp_path, name, b"a\n1\n"))
    assert said == f"FILE: got {got}, wanted one of .jsonl, .ndjson, .json, .csv, .parquet"


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet", "rows.csv.gz"])
def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path, name: str) -> None:
    assert problem(tmp_path / name) == "FILE: cannot be read: No such file or directory"
    (tmp_path / name).mkdir()
    assert problem(tmp_path / name) == "FILE: cannot be read: Is a directory"


def test_a_path_may_contain_an_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "rows.csv", b"a\n1\n")
    monkeypatch.setenv("DATA", str(tmp_path))
    assert [row for _, row in read_rows("${DATA}/rows.csv")] == [{"a": "1"}]


def test_an_unset_variable_is_named_and_values_of_set_ones_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.delenv("UNSET", raising=False)
    assert problem("${UNSET}/rows.csv") == "FILE: the environment variable UNSET is not set"
    assert problem("/none/${SECRET}.csv") == "FILE: cannot be read: No such file or directory"


def test_an_invalid_path_is_refused() -> None:
    assert "FILE" in problem("a\0b.csv")


def test_rows_are_read_one_at_a_time(tmp_path: Path) -> None:
    for name, content in (("rows.jsonl", b'{"a": 1}\n{'), ("rows.csv", b"a\n1\n2,3\n")):
        found = read_rows(write(tmp_path, name, content))
        assert next(found)[1] in ({"a": 1}, {"a": "1"})
        with pytest.raises(InputError):
            next(found)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("faq.csv", "faq"),
        ("data/faq.v2.parquet", "faq.v2"),
        ("/x/faq.jsonl.gz", "faq"),
        ("faq", "faq"),
        ("faq.gz", "faq"),
        ("${DATA}/faq.csv", "faq"),
    ],
)
def test_the_stem_is_the_file_name_without_its_suffixes(path: str, name: str) -> None:
    assert stem(path) == name


# Compression


def test_a_gz_file_that_is_not_compressed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(b'{"a": 1}\n')
    assert problem(path).startswith("FILE: cannot be read: Not a gzipped file")


def packed_noise() -> bytes:
    return gzip.compress(b"".join(b'{"a": %d}\n' % (number * 7919 % 10007) for number in range(3000)))


@pytest.mark.parametrize("kept", [5, 20, -1, -8, -100])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_a_truncated_gzip_file_is_refused(tmp_path: Path, suffix: str, kept: int) -> None:
    path = tmp_path / f"rows.{suffix}.gz"
    path.write_bytes(packed_noise()[:kept])
    assert problem(path).startswith("FILE: cannot be read: ")


def test_a_gzip_file_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(packed_noise()[:-8] + bytes(8))
    assert problem(path).startswith("FILE: cannot be read: CRC check failed")


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    packed = packed_noise()
    path.write_bytes(packed[:10] + b"\x07" + packed[11:])  # a kind of block that there is not
    assert problem(path).startswith("FILE: cannot be read: ")
