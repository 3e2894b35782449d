"""Sources of results: files, folders, globs and standard input, and what is refused, in one line."""

import gzip
import io
import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalflows.harnesses.assembling import SystemResults, joined_systems
from evalflows.harnesses.reading import FORMATS, read_results
from evalflows.harnesses.recording import names_of, read_sentence
from evalflows.specs.errors import InputError

RECORDED = Path(__file__).parent / "recorded"
ROWS = '{"id": "a", "correct": 1}\n{"id": "b", "correct": 0}\n'


def zipped(name: str, content: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def changed(name: str, **fields: Any) -> bytes:
    """A recorded document with other fields."""
    return json.dumps(json.loads((RECORDED / name).read_bytes()) | fields).encode()


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b" \n", "got an empty file, wanted results"),
    "no rows": (b"[]", "got [], wanted results: promptfoo, inspect,"),
    "a package": (b'{"name": "x", "version": "1"}', "got columns 'name, version', wanted an id: id, example_id,"),
    "no id": (b"note,correct\nx,1\n", "got columns 'note, correct', wanted an id"),
    "no id in a row": (b"id,correct\na,1\n,0\n", "result 2: got no id and no inputs, wanted an id"),
    "no scores": (b"id,note\na,x\n", "got columns 'id, note', wanted scores, as numbers or true and false"),
    "an id twice": (b"id,correct\na,1\na,0\n", "result 2: got the id 'a' twice, wanted it once"),
    "an id twice in a repetition": (
        b"id,epoch,correct\na,1,1\na,2,1\na,2,0\n",
        "result 3: got the id 'a' twice in repetition 2, wanted it once",
    ),
    "a repetition in words": (b"id,epoch,correct\na,one,1\n", "result 1: repetition: got 'one', wanted"),
    "equal inputs": (b"question,correct\na,1\na,0\n", "result 2: got the id 'a' twice"),
    "a score as text": (
        b"id,score\na,1\nb,pass\n",
        "result 2: score: got 'pass', wanted a finite number, true, false or null",
    ),
    "a score as text, in long form": (b"id,metric,value\na,tone,kind\n", "result 1: tone: got 'kind', wanted"),
    "an infinite score": (b"id,score\na,inf\n", "result 1: score: got 'inf', wanted a finite number"),
    "torn lines": (ROWS.encode()[:-9], ":2: not JSON: "),
    "torn JSON": ((RECORDED / "promptfoo.json").read_bytes()[:-30], "not JSON: "),
    "torn XML": ((RECORDED / "junit.xml").read_bytes()[:-30], "cannot be read: "),
    "a torn zip": ((RECORDED / "inspect.eval").read_bytes()[:-30], "cannot be read: File is not a zip file"),
    "a torn member": (
        (RECORDED / "inspect.eval").read_bytes().replace(b"\x28\xb5\x2f\xfd", b"torn"),
        "cannot be read: ",
    ),
    "torn Parquet": ((RECORDED / "table.parquet").read_bytes()[:-30], "not Parquet: "),
    "another zip": (zipped("notes.txt", ""), "got a zip file without header.json, wanted a log of Inspect (.eval)"),
    "a log without samples": (changed("inspect.json", samples=None), "got no results of Inspect, wanted at least one"),
    "no results in a document": (
        b'{"evalId": "e", "results": {"version": 3, "results": []}}',
        "got no results of promptfoo",
    ),
    "samples of another shape": (changed("inspect.json", samples=[1]), "that Inspect writes: AttributeError"),
    "means": (
        b'{"results": {}, "configs": {}, "versions": {}}',
        "got the means of lm-eval's tasks, wanted its samples_*.jsonl (--log_samples)",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    content, expected = BAD[what]
    path = tmp_path / "results"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_results(str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}:") and expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("source", "named", "expected"),
    [
        ("junit.xml", "excel", "format: got 'excel', wanted one of promptfoo, inspect, lm-eval,"),
        ("junit.xml", "promptfoo", "got columns 'testsuites', wanted promptfoo: evalId results | "),
        ("nothing.json", None, "nothing.json: cannot be read: No such file or directory"),
        ("*.xlsx", None, "*.xlsx: no file matches, wanted results"),
    ],
)
def test_a_source_that_is_not_there_or_another_is_refused(source: str, named: str | None, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_results(str(RECORDED / source), named)
    assert expected in str(caught.value)


def test_text_is_read_in_the_encodings_that_tools_write(tmp_path: Path) -> None:
    path = tmp_path / "results"
    for content in (
        ROWS.encode("utf-16"),
        ROWS.replace("\n", "\r\n").encode("utf-8-sig"),
        b"PK;correct;id\n1;1;a\n2;0;b\n",
    ):
        path.write_bytes(content)
        (results,) = read_results(str(path))
        assert [(row.example_id, row.scores["correct"]) for row in results.rows] == [("a", 1.0), ("b", 0.0)]


def test_what_a_table_calls_its_columns_and_cells_is_its_own(tmp_path: Path) -> None:
    """A metric may have a name that readers use, and the last cell of tabs may be empty."""
    path = tmp_path / "results.tsv"
    path.write_text("id\tunfinished\tscores\tmetadata\na\ttrue\t0\tshort\nb\tfalse\t1\t\n")
    (results,) = read_results(str(path))
    assert [row.scores for row in results.rows] == [
        {"scores": 0.0, "unfinished": 1.0},
        {"scores": 1.0, "unfinished": 0.0},
    ]
    assert (results.unfinished, results.rows[0].fields["metadata"]) == (None, "short")


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(ROWS.encode())

    monkeypatch.setattr(sys, "stdin", Input())
    (results,) = read_results("-")
    assert [row.example_id for row in results.rows] == ["a", "b"]


def test_all_results_of_a_folder_are_read_and_nothing_else(tmp_path: Path) -> None:
    """Each file is its own; ids of several tasks of lm-eval do not clash."""
    name = "samples_sums_2026-11-29T08-33-49.159841.jsonl"
    below = tmp_path / "mock"
    below.mkdir()
    for task in ("sums", "products"):
        (below / name.replace("sums", task)).write_bytes((RECORDED / name).read_bytes())
    (below / "results.json").write_text('{"results": {}, "configs": {}, "versions": {}}')
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "README.md").write_text("# Results")
    (tmp_path / ".hidden.jsonl").write_text(ROWS)
    (tmp_path / "table.jsonl.gz").write_bytes(gzip.compress(ROWS.encode()))
    found = read_results(str(tmp_path))
    assert [(each.format, each.rows[0].example_id) for each in found] == [
        ("lm-eval", "products/0"),
        ("lm-eval", "sums/0"),
        ("table", "a"),
    ]
    assert found[0].source == str(below / name.replace("sums", "products"))
    assert found[0].notes == [f"{tmp_path}: left out as no results: mock/results.json, package.json"]
    assert joined_systems(found[:2])[0].source == str(below)
    assert [each.source for each in read_results(f"{tmp_path}/**/samples_*.jsonl")] == [
        each.source for each in found[:2]
    ]
    (below / "torn.jsonl").write_text(ROWS[:-9])
    with pytest.raises(InputError, match=r"torn\.jsonl:2: not JSON"):
        read_results(str(tmp_path))


def test_a_folder_without_results_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got no file ending in \.jsonl, .*\.eval, \.xml, wanted results"):
        read_results(str(tmp_path))
    (tmp_path / "results.json").write_text('{"results": {}, "configs": {}, "versions": {}}')
    with pytest.raises(InputError, match=r"results\.json: got the means of lm-eval's tasks"):
        read_results(str(tmp_path))


def test_the_folder_of_a_run_of_helm_names_its_task_and_model(tmp_path: Path) -> None:
    """Of its files, only the statistics are results."""
    run = tmp_path / "sums:kind=easy,model=mock_small"
    run.mkdir()
    (run / "per_instance_stats.json").write_bytes((RECORDED / "per_instance_stats.json").read_bytes())
    (run / "display_predictions.json").write_text('[{"instance_id": "id0", "stats": {"exact_match": 1}}]')
    (run / "instances.json").write_text('[{"id": "id0", "input": {"text": "2 + 3?"}, "split": "test"}]')
    (results,) = read_results(str(tmp_path))
    assert (results.system, results.rows[-1].example_id) == ("mock_small", "sums:kind=easy/id1")
    sides = [replace(results, system="", source=f"{name}/stats.json") for name in ("old", "new")]
    assert names_of(sides) == ["old", "new"], "a name for both, if files have the same"


def test_files_of_a_system_are_one_without_dropping_a_score(tmp_path: Path) -> None:
    """A file for each metric, and repetitions where a format has them; an id twice is refused, as in one file."""

    def joined(*contents: str) -> list[SystemResults]:
        for place, content in enumerate(contents):
            (tmp_path / f"{place}.json").write_text(content)
        return joined_systems(read_results(str(tmp_path)))

    (found,) = joined("id,correct\na,1\nb,0\n", "id,tone\nb,0.5\na,1\n")
    assert [row.scores for row in found.rows] == [{"correct": 1.0, "tone": 1.0}, {"correct": 0.0, "tone": 0.5}]
    case = json.dumps({"testCases": [{"input": "q", "success": True}]})
    (found,) = joined(case, case)
    assert [(row.example_id, row.repetition) for row in found.rows] == [("q", 0), ("q", 1)]
    with pytest.raises(InputError, match=r"1\.json: got the id 'b', which .*0\.json has too, wanted it in one of them"):
        joined("id,correct\na,1\nb,0\n", "id,correct\nb,1\n")


def test_the_pages_of_an_answer_are_whole_or_reported_as_incomplete(tmp_path: Path) -> None:
    for number in (1, 2):
        trace = {"id": f"t{number}", "input": f"q{number}", "scores": [{"name": "correct", "value": 1}]}
        page = {"data": [trace], "meta": {"page": number, "limit": 1, "totalItems": 2, "totalPages": 2}}
        (tmp_path / f"{number}.json").write_text(json.dumps(page))
    (alone,), (whole,) = (
        joined_systems(read_results(str(tmp_path / "1.json"))),
        joined_systems(read_results(str(tmp_path))),
    )
    assert (alone.unfinished, whole.unfinished, len(whole.rows)) == ("1 of 2 pages were given", None, 2)
    assert read_sentence([alone]).endswith(f"{tmp_path / '1.json'} is incomplete: 1 of 2 pages were given")


def test_several_prompts_of_a_provider_are_systems_of_their_own(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (RECORDED / "promptfoo.jsonl").read_text().splitlines()[:2]]
    rows[1] |= {"prompt": {"raw": "Be brief: 2 + 3?", "label": "Be brief: {{question}}"}, "promptIdx": 1}
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [each.system for each in read_results(str(path))] == [
        "small, Answer: {{question}} #0",
        "small, Be brief: {{question}} #1",
    ]


def test_the_page_of_formats_names_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "result_formats.md").read_text()
    assert [name for name in FORMATS if f"| `{name}` |" not in page] == []
