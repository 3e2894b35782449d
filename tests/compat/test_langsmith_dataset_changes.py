"""Changes of LangSmith's datasets: updates, removals, splits, versions, and tables that become datasets."""

import io
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from evalflows.compat.langsmith import Client
from evalflows.compat.langsmith.schemas import AttachmentsOperations, ExampleCreate
from evalflows.specs import InputError
from evalflows.store import Store
from evalflows.store.ingest import find_snapshot
from evalflows.store.snapshots import load_snapshot


@pytest.fixture
def client() -> Client:
    made = Client()
    made.create_dataset("d", description="numbers", metadata={"owner": "me"})
    examples = [ExampleCreate(inputs={"q": name}, reference_outputs={"a": name}) for name in ("one", "two", "three")]
    made.create_examples(dataset_name="d", examples=examples)
    return made


def listed(client: Client, **wanted: Any) -> dict[str, Any]:
    return {example.inputs["q"]: example for example in client.list_examples(dataset_name="d", **wanted)}


def test_an_updated_example_keeps_its_id_place_and_other_fields(client: Client) -> None:
    before = listed(client)
    two = before["two"]
    done = client.update_example(two.id, outputs={"a": "2"}, metadata={"checked": True}, split="test")
    assert (done["count"], done["example_ids"]) == (1, [two.id])
    after = listed(client)
    assert [*after] == [*before]
    found = after["two"]
    assert (found.id, found.inputs, found.outputs) == (two.id, {"q": "two"}, {"a": "2"})
    assert (found.metadata, found.split) == ({"checked": True}, "test")
    assert after["one"].outputs == before["one"].outputs
    dataset = client.read_dataset(dataset_name="d")
    assert (dataset.description, dataset.metadata, dataset.example_count) == ("numbers", {"owner": "me"}, 3)


def test_a_version_keeps_what_it_had(client: Client) -> None:
    two = listed(client)["two"]
    first, made = client.list_dataset_versions(dataset_name="d")
    client.update_example(two.id, outputs={"a": "2"})
    client.create_examples(dataset_name="d", inputs=[{"q": "four"}])
    client.delete_example(listed(client)["one"].id)
    assert [*listed(client)] == ["two", "three", "four"]
    assert [*listed(client, as_of=first.as_of)] == ["one", "two", "three"]
    assert listed(client, as_of=made.as_of) == {}
    assert client.read_example(two.id, as_of=first.as_of).outputs == {"a": "two"}
    assert client.read_example(two.id) == listed(client, as_of="latest")["two"]
    assert load_snapshot(Store(), first.snapshot_id)[1].reference_outputs == '{"a":"two"}'
    newest = client.read_dataset_version(dataset_name="d")
    assert newest.snapshot_id == find_snapshot(Store(), "d")
    changed = client.diff_dataset_versions(dataset_name="d", from_version=first.as_of, to_version="latest")
    assert changed.examples_modified == [two.id]
    assert (len(changed.examples_added), len(changed.examples_removed)) == (1, 1)
    assert len(list(client.list_dataset_versions(dataset_name="d", limit=2))) == 2
    client.update_dataset_tag(dataset_name="d", as_of=first.as_of, tag="prod")
    assert client.read_dataset_version(dataset_name="d", tag="prod").snapshot_id == first.snapshot_id
    assert find_snapshot(Store(), "d@prod") == first.snapshot_id, "a dataset of its own, for specs"
    tagged = client.list_examples(dataset_name="d", as_of="prod")
    assert len(list(tagged)) == len(load_snapshot(Store(), first.snapshot_id))
    assert [dataset.name for dataset in client.list_datasets()] == ["d"]
    client.update_example(two.id, outputs={"a": "2"})
    assert client.read_example(two.id).outputs == {"a": "2"}, "the tagged version is no second dataset"


def test_attachments_are_kept_renamed_and_added(client: Client) -> None:
    made = client.create_example(
        {"q": "file"}, dataset_name="d", attachments={"old": ("text/plain", b"1"), "gone": ("text/plain", b"2")}
    )
    client.update_example(made.id, attachments={"new": ("text/plain", b"3")})
    assert contents(client, made.id) == {"old": b"1", "gone": b"2", "new": b"3"}
    keep = AttachmentsOperations(rename={"old": "kept"}, retain=["new"])
    client.update_example(made.id, attachments_operations=keep)
    assert contents(client, made.id) == {"kept": b"1", "new": b"3"}
    client.update_example(made.id, attachments_operations={"retain": []}, attachments={"x": ("a/b", b"\xff")})
    assert contents(client, made.id) == {"x": b"\xff"}


def contents(client: Client, example: str) -> dict[str, bytes]:
    attachments = client.read_example(example).attachments or {}
    return {name: attachment["reader"].read() for name, attachment in attachments.items()}


def test_what_cannot_be_is_refused_in_one_line(client: Client) -> None:
    one = listed(client)["one"].id
    long_ago = client.read_dataset(dataset_name="d").created_at - timedelta(days=1)
    frame = pd.DataFrame({"q": ["x"]})
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: client.update_example("nope", split="x"), "example 'nope': in no dataset's current version"),
        (lambda: client.update_examples(updates=[{"id": one, "colour": 1}]), "update: got the field 'colour'"),
        (lambda: client.update_examples(inputs=[{}]), "neither updates nor example_ids"),
        (lambda: client.update_example(one, attachments_operations={"retain": ["f"]}), "got 'f', wanted one of: none"),
        (lambda: client.delete_examples([one], hard_delete=True), "hard_delete: got True, wanted False: earlier"),
        (lambda: client.list_examples(dataset_name="d", as_of=long_ago), "when 'd' began"),
        (lambda: client.read_example("nope"), "example 'nope': in no dataset"),
        (lambda: client.upload_dataframe(frame, "f", ["q"], ["a"]), "data frame: no column 'a', wanted one of: q"),
        (lambda: client.upload_dataframe(frame, "d", ["q"], []), "dataset 'd': already in the store"),
    ]
    for call, message in refused:
        with pytest.raises(InputError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)
    assert [*listed(client)] == ["one", "two", "three"]
    assert [dataset.name for dataset in client.list_datasets()] == ["d"]


def test_splits_are_listed_and_changed(client: Client) -> None:
    one, two, _ = (example.id for example in listed(client).values())
    client.update_dataset_splits(dataset_name="d", split_name="train", example_ids=[one, two])
    client.update_dataset_splits(dataset_name="d", split_name="test", example_ids=[two])
    assert client.list_dataset_splits(dataset_name="d") == ["test", "train"]
    assert [*listed(client, splits=["train"])] == ["one"]
    client.update_dataset_splits(dataset_name="d", split_name="train", example_ids=[one, two], remove=True)
    assert client.list_dataset_splits(dataset_name="d") == ["test"], "the other split is left alone"


def test_a_table_becomes_a_dataset(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('question,context,answer\n"one, or so?",,1\ntwo?,here,2\n')
    of_file = client.upload_csv(str(path), ["question", "context"], ["answer"], description="of a file")
    opened = client.upload_csv(("signals.csv", io.BytesIO(b"flag,meaning\nA,diver down\n")), ["flag"], ["meaning"])
    frame = pd.DataFrame({"question": ["one", "two"], "n": [1, 2], "share": [0.5, None]})
    of_frame = client.upload_dataframe(frame, "frame", ["question"], ["n", "share"])
    assert (of_file.name, of_file.description, of_file.example_count) == ("table", "of a file", 2)
    assert (opened.name, opened.example_count) == ("signals", 1)
    first, second = client.list_examples(dataset_id=of_file.id)
    assert (first.inputs, first.outputs) == ({"question": "one, or so?"}, {"answer": "1"}), "an empty cell is left out"
    assert (second.inputs, second.outputs) == ({"question": "two?", "context": "here"}, {"answer": "2"})
    outputs = [example.outputs for example in client.list_examples(dataset_id=of_frame.id)]
    assert outputs == [{"n": 1, "share": 0.5}, {"n": 2}]
