"""LangSmith's client and its datasets: every shape of examples, growth, and what is rejected."""

import json
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from evalflows.cli.dataset import dataset
from evalflows.compat.langsmith import Client
from evalflows.compat.langsmith.datasets import as_data
from evalflows.specs import InputError
from evalflows.store import Store, connect
from evalflows.store.ingest import find_snapshot
from evalflows.store.snapshots import load_snapshot

EXAMPLES = [
    {"inputs": {"q": "one"}, "outputs": {"a": "1"}, "metadata": {"confidence_level": 1}, "split": "train"},
    {"inputs": {"q": "two"}, "outputs": {"a": "2"}, "metadata": {"confidence_level": 2}, "split": ["test"]},
    {"inputs": {"q": "three"}},
]


@pytest.fixture
def client() -> Client:
    return Client()


def names(client: Client, **wanted: Any) -> list[str]:
    return [dataset.name for dataset in client.list_datasets(**wanted)]


def questions(client: Client, **wanted: Any) -> list[str]:
    return [example.inputs["q"] for example in client.list_examples(**wanted)]


def test_a_dataset_is_there_before_it_has_examples_in_every_process(client: Client) -> None:
    made = client.create_dataset("d", description="numbers", metadata={"owner": "me"})
    found = Client().read_dataset(dataset_id=made.id)
    assert found == made == client.read_dataset(dataset_name="d")
    assert (found.name, found.description, found.metadata, found.example_count) == ("d", "numbers", {"owner": "me"}, 0)
    assert found.created_at == found.modified_at
    assert uuid.UUID(found.id)
    assert client.has_dataset(dataset_name="d") and client.has_dataset(dataset_id=uuid.UUID(made.id))
    assert not client.has_dataset(dataset_name="e")
    assert list(client.list_examples(dataset_name="d")) == []


def test_a_dataset_grows_and_keeps_its_ids(client: Client) -> None:
    dataset = client.create_dataset("d", description="numbers")
    first = client.create_examples(dataset_id=dataset.id, examples=EXAMPLES[:2])
    before = list(client.list_examples(dataset_name="d"))
    second = client.create_examples(dataset_name="d", examples=EXAMPLES[2:])
    after = list(client.list_examples(dataset_id=dataset.id))
    assert (first["count"], second["count"]) == (2, 1)
    assert after[:2] == before
    assert [example.id for example in after] == [*first["example_ids"], *second["example_ids"]]
    assert {example.dataset_id for example in after} == {dataset.id}
    merge_examples = client.read_dataset(dataset_name="d")
    assert (merge_examples.id, merge_examples.description, merge_examples.example_count) == (dataset.id, "numbers", 3)
    assert merge_examples.created_at == dataset.created_at < merge_examples.modified_at
    with connect() as catalog:
        versions = "select parent_snapshot_id, snapshot_id from dataset_versions order by recorded_at"
        chain = catalog.execute(versions).fetchall()
    assert [row[0] for row in chain] == [None, *(row[1] for row in chain[:-1])]
    assert load_snapshot(Store(), find_snapshot(Store(), "d"))[1].split == "test"


def test_examples_come_in_every_shape(client: Client) -> None:
    references = [{"reference_outputs": row.get("outputs"), **row, "outputs": None} for row in EXAMPLES]
    fields = {"inputs": "inputs", "outputs": "outputs", "metadata": "metadata", "splits": "split"}
    shapes: list[dict[str, Any]] = [
        {"examples": EXAMPLES},
        {"examples": references},
        {"examples": [SimpleNamespace(**row, created_at="now", source_run_id=None) for row in EXAMPLES]},
        {name: [row.get(field) for row in EXAMPLES] for name, field in fields.items()},
    ]
    for number, shape in enumerate(shapes):
        client.create_dataset(f"d{number}")
        client.create_examples(dataset_name=f"d{number}", **shape)
        found = list(client.list_examples(dataset_name=f"d{number}"))
        assert [(e.inputs, e.outputs, e.metadata, e.split) for e in found] == [
            ({"q": "one"}, {"a": "1"}, {"confidence_level": 1}, "train"),
            ({"q": "two"}, {"a": "2"}, {"confidence_level": 2}, "test"),
            ({"q": "three"}, None, None, None),
        ]
    identity = uuid.uuid4()
    made = client.create_example({"q": "one"}, dataset_name="d0", outputs={"a": 1}, example_id=identity, split="x")
    assert (made.id, made.inputs, made.outputs, made.split) == (str(identity), {"q": "one"}, {"a": 1}, "x")
    assert list(client.list_examples(dataset_name="d0", example_ids=[identity])) == [made]


def test_an_example_that_is_there_is_not_added_again(client: Client) -> None:
    client.create_dataset("d")
    first = client.create_examples(dataset_name="d", examples=EXAMPLES)
    again = client.create_examples(dataset_name="d", examples=EXAMPLES[:1])
    assert again["example_ids"] == first["example_ids"][:1]
    assert client.read_dataset(dataset_name="d").example_count == 3
    with pytest.raises(InputError, match="with other content, wanted a new id"):
        client.create_examples(dataset_name="d", inputs=[{"q": "x"}], ids=first["example_ids"][:1])


def test_what_is_listed_can_be_chosen(client: Client) -> None:
    client.create_dataset("b", metadata={"team": "x"})
    client.create_dataset("abc")
    client.create_examples(dataset_name="b", examples=EXAMPLES)
    assert names(client) == names(client, data_type="kv") == ["abc", "b"], "the newest first"
    assert names(client, dataset_name_contains="b", limit=1) == ["abc"]
    assert names(client, dataset_name="b") == names(client, metadata={"team": "x"}) == ["b"]
    assert names(client, dataset_ids=[client.read_dataset(dataset_name="abc").id]) == ["abc"]
    assert questions(client, dataset_name="b", splits=["test", "train"]) == ["one", "two"]
    assert questions(client, dataset_name="b", offset=1, limit=1) == ["two"]
    assert questions(client, dataset_name="b", metadata={"confidence_level": 2}) == ["two"]


def test_a_deleted_dataset_is_hidden_its_versions_stay_and_its_name_is_free(client: Client) -> None:
    for name in ("kept", "old"):
        client.create_dataset(name)
        client.create_examples(dataset_name=name, examples=EXAMPLES)
    (old, *_), (example, *_) = (
        client.list_dataset_versions(dataset_name="old"),
        client.list_examples(dataset_name="old"),
    )
    client.delete_dataset(dataset_name="old")
    assert names(client) == ["kept"] and not client.has_dataset(dataset_name="old")
    for gone in (
        lambda: client.read_example(example.id),
        lambda: client.delete_dataset(dataset_name="old"),
        lambda: as_data(Store(), "old"),
        lambda: find_snapshot(Store(), "old"),
    ):
        with pytest.raises(InputError, match=r"wanted kept$|wanted one of: kept$|in no dataset's current version"):
            gone()  # type: ignore[no-untyped-call]
    assert len(load_snapshot(Store(), old.snapshot_id)) == 3
    for option, wanted in (((), [("kept", False)]), (("--all",), [("kept", False), ("old", True)])):
        shown = json.loads(CliRunner().invoke(dataset, ["ls", *option, "--format", "json"]).stdout)
        assert [(row["name"], bool(row["deleted"])) for row in shown] == wanted
        assert {row["versions"] for row in shown} == {2}
    assert old.snapshot_id in CliRunner().invoke(dataset, ["ls", "--all"], terminal_width=200).stdout
    client.create_dataset("old")
    client.create_example({"q": "anew"}, dataset_name="old")
    assert questions(client, dataset_name="old") == ["anew"] and names(client) == ["old", "kept"]
    assert len([*client.list_dataset_versions(dataset_name="old")]) == 2, "those since it was made again"


def test_what_cannot_be_is_refused_in_one_line(client: Client) -> None:
    client.create_dataset("d")
    for call, message in (
        (lambda: client.create_dataset("d"), "dataset 'd': already in the store"),
        (lambda: client.create_dataset("e", inputs_schema={}), "^create_dataset: inputs_schema: got {}, wanted None"),
        (lambda: client.read_dataset(dataset_name="e"), "dataset 'e': not in the store, wanted one of: d"),
        (lambda: client.has_dataset(), "exactly one of dataset_name and dataset_id"),
        (lambda: client.delete_dataset(dataset_name="e"), "dataset 'e': not in the store"),
        (
            lambda: client.list_examples(dataset_name="d", as_of="v1"),
            "as_of: got 'v1', wanted a time, 'latest', or a tag",
        ),
        (lambda: client.create_examples(dataset_name="d"), "neither examples nor inputs"),
        (lambda: client.create_examples(dataset_name="d", examples=[{"outputs": {}}]), "dataset 'd':1: no inputs"),
        (
            lambda: client.create_examples(dataset_name="d", inputs=[{"q": 1}], splits=[["a", "b"]]),
            r"split: got \['a', 'b'\], wanted at most one",
        ),
        (lambda: client.create_example({"q": 1}, dataset_name="d", source_run_id="r"), "source_run_id: got 'r'"),
        (lambda: Client(hide_inputs=True), "^Client: hide_inputs: got True, wanted None"),
    ):
        with pytest.raises(InputError, match=message) as raised:
            call()  # type: ignore[no-untyped-call]
        assert "\n" not in str(raised.value)
    assert client.read_dataset(dataset_name="d").example_count == 0
    assert names(client) == ["d"]
