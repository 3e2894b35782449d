"""Attachments: bytes that an example carries, and that targets and evaluators read."""

import base64
from pathlib import Path
from typing import Any

import pytest

from evalflows.compat.langsmith import Client
from evalflows.compat.langsmith.conversion import opened, to_stored
from evalflows.compat.langsmith.schemas import Attachment
from evalflows.specs import InputError

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


def test_what_is_not_bytes_is_refused_in_one_line() -> None:
    client = Client()
    client.create_dataset("d")
    for attachment, message in (
        (("text/plain", "text"), "got str, wanted bytes"),
        (("text/plain", Path("f")), "got a path, wanted bytes, or dangerously_allow_filesystem=True"),
        (b"bytes", r"wanted \(MIME type, bytes\)"),
        ({"mime_type": "text/plain", "data": None}, "got NoneType, wanted bytes"),
    ):
        examples: list[Any] = [{"inputs": {"q": 1}, "attachments": {"f": attachment}}]
        with pytest.raises(InputError, match=f"^example: attachment 'f': .*{message}"):
            client.create_examples(dataset_name="d", examples=examples)
    with pytest.raises(InputError, match=r"^example: attachment 'f': /no/file: cannot be read"):
        examples = [{"inputs": {"q": 1}, "attachments": {"f": ("a/b", Path("/no/file"))}}]
        client.create_examples(dataset_name="d", examples=examples, dangerously_allow_filesystem=True)
