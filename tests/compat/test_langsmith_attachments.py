"""Attachments: bytes that an example carries, and that targets and evaluators read."""

import base64
from pathlib import Path
from typing import Any

import pytest

from evalflows.compat.langsmith import Client, evaluate
from evalflows.compat.langsmith.attachments import opened, to_stored
from evalflows.compat.langsmith.schemas import Attachment, Example, Run
from evalflows.specs import InputError
from evalflows.store import connect

EVERY_BYTE = bytes(range(256))


def test_every_form_of_bytes_is_stored_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(EVERY_BYTE)
    forms = {
        "tuple": ("image/png", EVERY_BYTE),
        "named": Attachment(mime_type="image/png", data=EVERY_BYTE),
        "mapping": {"mime_type": "image/png", "data": EVERY_BYTE},
        "path": ("image/png", path),
        "link": {"url": "https://example.org/a.png"},
    }
    stored = to_stored(forms, "example", may_read_files=True)
    assert stored["link"] == forms["link"], "other JSON is as it was"
    found = opened(stored) or {}
    for name in ("tuple", "named", "mapping", "path"):
        assert found[name]["reader"].read() == EVERY_BYTE and found[name]["mime_type"] == "image/png"
        prefix, _, text = found[name]["presigned_url"].partition(",")
        assert (prefix, base64.b64decode(text)) == ("data:image/png;base64", EVERY_BYTE)
    assert to_stored(found, "example") == stored, "also after its readers were read"
    assert to_stored(stored, "example") == stored


@pytest.mark.parametrize(
    ("attachment", "message"),
    [
        (("text/plain", "text"), "got str, wanted bytes"),
        (("text/plain", Path("f")), "got a path, wanted bytes, or dangerously_allow_filesystem=True"),
        (b"bytes", r"wanted \(MIME type, bytes\)"),
        ({"mime_type": "text/plain", "data": None}, "got NoneType, wanted bytes"),
    ],
)
def test_what_is_not_bytes_is_refused_in_one_line(attachment: Any, message: str) -> None:
    client = Client()
    client.create_dataset("d")
    with pytest.raises(InputError, match=f"^example: attachment 'f': .*{message}"):
        client.create_examples(dataset_name="d", examples=[{"inputs": {"q": 1}, "attachments": {"f": attachment}}])
    with pytest.raises(InputError, match=r"^example: attachment 'f': /no/file: cannot be read"):
        examples = [{"inputs": {"q": 1}, "attachments": {"f": ("a/b", Path("/no/file"))}}]
        client.create_examples(dataset_name="d", examples=examples, dangerously_allow_filesystem=True)


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_targets_and_evaluators_read_them() -> None:
    client = Client()
    client.create_dataset("files")
    examples = [
        {"inputs": {"q": name}, "attachments": {"file": ("text/plain", name.encode() * 2)}} for name in ("a", "b")
    ]
    client.create_examples(dataset_name="files", examples=examples)

    def target(inputs: dict[str, Any], attachments: dict[str, Any]) -> dict[str, Any]:
        return {"text": attachments["file"]["reader"].read().decode()}

    def same(outputs: dict[str, Any], attachments: dict[str, Any]) -> bool:
        file = attachments["file"]
        assert file["presigned_url"].startswith("data:text/plain;base64,")
        return bool(file["reader"].read().decode() == outputs["text"])

    def of_the_example(run: Run, example: Example) -> bool:
        assert run.outputs and example.attachments
        return bool(example.attachments["file"]["reader"].read().decode() == run.outputs["text"])

    results = evaluate(target, data="files", evaluators=[same, of_the_example])
    assert [row["run"].outputs for row in results] == [{"text": "aa"}, {"text": "bb"}]
    assert all(result.score is True for row in results for result in row["evaluation_results"]["results"])
    listed = list(client.list_examples(dataset_name="files", include_attachments=True))
    again = evaluate(target, data=listed, evaluators=[same])
    assert again.get_dataset_id() == results.get_dataset_id(), "the same examples are the same dataset"
    with connect() as catalog:
        versions = catalog.execute("select count(distinct snapshot_id) from experiments").fetchone()
    assert versions == (1,)
