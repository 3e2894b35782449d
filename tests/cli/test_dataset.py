"""evalflows dataset add | ls | show | diff, in this process."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evalflows.cli.main import cli
from evalflows.store import Store
from evalflows.store.snapshots import current_snapshot, load_snapshot


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def dataset(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["dataset", *arguments])


def said(*arguments: str) -> str:
    done = dataset(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def refused(*arguments: str) -> str:
    done = dataset(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("evalflows: ") and done.stderr.count("\n") == 1
    return done.stderr


def write(name: str, *questions: str, answer: str = "yes") -> None:
    rows = [{"id": question, "inputs": {"question": question}, "outputs": {"answer": answer}} for question in questions]
    Path(name).write_text("\n".join(map(json.dumps, rows)))


def ids(name: str) -> list[str]:
    store = Store()
    return [row.example_id for row in load_snapshot(store, current_snapshot(store, name) or "")]


def test_a_dataset_grows_and_its_examples_keep_their_ids() -> None:
    write("faq.jsonl", "a", "b")
    assert "no datasets yet" in said("ls")
    assert "2 examples; 2 added, 0 unchanged" in said("add", "faq.jsonl")
    assert "dataset 'faq': has only one version" in refused("diff", "faq")
    assert "2 examples; 2 unchanged" in said("add", "faq.jsonl")
    assert Store().query("select count(*) from source.dataset_versions") == [(1,)]
    write("more.jsonl", "b", "c")
    assert "3 examples; 1 added, 2 unchanged" in said("add", "more.jsonl", "--name", "faq")
    assert ids("faq") == ["a", "b", "c"]
    assert "1 added, 2 unchanged" in said("diff", "faq")
    assert "  + c\n" in said("diff", "faq")
    listed = said("ls")
    assert "faq" in listed and " 3 " in listed


def test_another_content_under_a_known_id_is_refused_unless_the_whole_is_replaced() -> None:
    write("faq.jsonl", "a", "b")
    said("add", "faq.jsonl")
    write("faq.jsonl", "b", answer="no")
    assert "faq.jsonl: got example 'b', in the dataset with other content" in refused("add", "faq.jsonl")
    assert ids("faq") == ["a", "b"]
    assert "1 examples; 1 removed, 1 changed, 0 unchanged" in said("add", "faq.jsonl", "--replace")
    assert "  - a\n  ~ b\n      reference_outputs.answer: 'yes' -> 'no'\n" in said("diff", "faq")


def test_the_delimiter_of_a_csv_file_is_found() -> None:
    for number, delimiter in enumerate(",;\t|"):
        rows = ("id,question,best", '1,"How?",So.', "2,Why?,Because.")
        Path(f"faq{number}.csv").write_text("\n".join(row.replace(",", delimiter) for row in rows))
        said("add", f"faq{number}.csv", "--inputs", "question", "--reference", "answer=best")
        (first, _) = load_snapshot(Store(), current_snapshot(Store(), f"faq{number}") or "")
        assert (first.inputs, first.reference_outputs) == ('{"question":"How?"}', '{"answer":"So."}')


def test_a_csv_file_of_any_schema() -> None:
    Path("faq.csv").write_text("nr,question,best,topic\n7,How?,So.,login\n8,Why?,Because.,billing\n")
    said("add", "faq.csv", "--inputs", "question", "--reference", "best", "--id", "nr")
    (first, _) = load_snapshot(Store(), current_snapshot(Store(), "faq") or "")
    assert (first.example_id, first.inputs, first.reference_outputs, first.metadata) == (
        *("7", '{"question":"How?"}', '{"best":"So."}'),
        '{"topic":"login"}',
    )
    shown = said("show", "faq")
    assert "2 examples" in shown and "How?" in shown and "from faq.csv" in shown


def test_a_deleted_dataset_is_hidden_and_its_versions_stay() -> None:
    write("faq.jsonl", "a", "b")
    said("add", "faq.jsonl")
    snapshot = current_snapshot(Store(), "faq") or ""
    assert said("delete", "faq") == "faq: deleted; its versions stay\n"
    assert "no datasets yet" in said("ls") and "faq" in said("ls", "--all")
    assert "2 examples" in said("show", snapshot)
    for name in ("faq", "other"):
        assert f"dataset '{name}': not in the store" in refused("delete", name)
    write("faq.jsonl", "c")
    said("add", "faq.jsonl")
    assert ids("faq") == ["c"], "its name was free"


def test_two_datasets_are_compared() -> None:
    write("one.jsonl", "a", "b")
    write("two.jsonl", "b", "c")
    said("add", "one.jsonl")
    said("add", "two.jsonl")
    assert "1 added, 1 removed, 1 unchanged" in said("diff", "one", "two")
    snapshot = current_snapshot(Store(), "one") or ""
    assert "1 added, 1 removed, 1 unchanged" in said("diff", snapshot, "two")


@pytest.mark.usefixtures("store")
def test_bad_input_is_one_line() -> None:
    Path("x.csv").write_text("question\nHow?\n")
    for arguments, message in (
        (("add", "nowhere.jsonl"), "nowhere.jsonl: cannot be read: No such file"),
        (("add", "rows.txt"), "rows.txt: got .txt, wanted one of .jsonl"),
        (("add", "x.csv"), "x.csv:2: no inputs: got question, wanted 'inputs'"),
        (("add", "x.csv", "--inputs", "answer"), "x.csv:2: no column 'answer', got question"),
        (("add", "x.csv", "--reference", "answer"), "--reference and --id: wanted --inputs too"),
        (("show", "nothing"), "dataset 'nothing': not in the store, wanted one of: none yet"),
        (("diff", "nothing", "more"), "dataset 'nothing': not in the store"),
    ):
        assert message in refused(*arguments)
