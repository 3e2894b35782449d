"""Pictures, sounds and PDFs of examples: which are taken, and how long the store keeps them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from evalflows.specs import InputError
from evalflows.specs.attachments import TYPES, attachment_in, content_of, labelled_text, without_contents
from evalflows.specs.dataset import DatasetSpec
from evalflows.store import Store
from evalflows.store.attachments import content_in
from evalflows.store.erasing import Selection
from evalflows.store.ingest import load_dataset
from evalflows.store.records import to_json
from evalflows.store.retention import erase, would_erase
from evalflows.store.snapshots import freeze, to_examples

STARTS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\n\0\n\0WEBP",
    "audio/wav": b"RIFF\n\0\n\0WAVE",
    "audio/mpeg": b"\xff\xfb\x90",
    "application/pdf": b"%PDF-1.4",
}


def url_of(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def test_types_are_told_by_their_first_bytes_and_references_carry_any_name() -> None:
    assert STARTS.keys() == TYPES.keys()
    for media_type, data in STARTS.items():
        assert content_of(data, media_type).attachment.media_type == media_type
        with pytest.raises(InputError, match=f"wanted {'image/gif' if media_type != 'image/gif' else 'audio/wav'}"):
            content_of(data, "image/gif" if media_type != "image/gif" else "audio/wav")
    assert content_of(b"ID3\x04", "audio/mp3").attachment.media_type == "audio/mpeg"
    odd = content_of(STARTS["image/png"], None, 'a b";%ä\n.png').attachment
    assert attachment_in(str(odd)) == odd and json.loads(to_json(str(odd))) == str(odd)
    assert attachment_in(f"{odd} ") is None and attachment_in("attachment:image/png;size=1;sha256=0") is None
    named = {"type": "image_url", "image_url": {"url": str(odd)}}
    given = {"type": "image_url", "image_url": {"url": url_of(STARTS["image/png"])}}
    assert without_contents(to_json(named)) == without_contents(to_json(given)), "a request is known by its content"
    broken = to_json({"url": "data:image/png;base64,AAAA"})
    assert without_contents(broken) == broken == labelled_text(broken)
    said = labelled_text(f"see ![x]({url_of(STARTS['image/gif'], 'image/gif')})")
    assert said == "see ![x]([image: image/gif, 6 bytes, not shown])"


def test_a_content_is_kept_once_and_as_long_as_an_example_has_it(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(STARTS["image/png"] + b"1")
    content = [{"type": "image_url", "image_url": {"url": "one.png"}}]
    rows: list[dict[str, Any]] = [
        {
            "id": "path",
            "inputs": {"q": 1},
            "attachments": {"a": "one.png", "n": 3, "page": "https://example.org/a.png"},
        },
        {"id": "part", "inputs": {"messages": [{"role": "user", "content": content}]}},
        {"id": "url", "inputs": {"q": 2}, "attachments": [url_of(STARTS["image/png"] + b"2")]},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    store, spec = Store(), DatasetSpec(path=str(tmp_path / "rows.jsonl"))
    first = load_dataset(store, spec).keep(store)
    assert load_dataset(store, spec).keep(store) == first
    assert store.query("select count(*), max(n_bytes) from attachments") == [(2, 9)]
    (tmp_path / "one.png").write_bytes(STARTS["image/png"] + b"3")
    assert load_dataset(store, spec).keep(store) != first, "the file of rows is the same, the picture is not"
    assert store.query("select count(*) from attachments") == [(3,)]
    assert would_erase(store, Selection(examples=["url"])).rows["attachments"] == 1
    assert erase(store, Selection(examples=["url"]), None).rows["attachments"] == 1
    assert "attachments" not in erase(store, Selection(examples=["path"]), None).rows, "the parts have it still"
    assert erase(store, Selection(examples=["part"]), None).rows["attachments"] == 2
    assert store.query("select count(*) from attachments") == [(0,)]
    assert not [*Path(store.layout.root, "attachments").rglob("sealed/*")], "not even the folders' names stay"


def test_a_reference_without_its_content_is_refused_and_rows_of_no_file_stay_as_they_are() -> None:
    store, absent = Store(), content_of(STARTS["application/pdf"], None).attachment
    rows = [{"inputs": {"q": 1}, "attachments": {"a": str(absent)}}]
    with pytest.raises(
        InputError, match=r"attachment [0-9a-f]{12}…: got no content, wanted a path, a data URL or base64"
    ):
        freeze(store, to_examples(enumerate(rows), "rows"), name=None, source="rows")
    assert content_in(store, absent) is None and not store.query("select 1 from snapshots")
    odd = {"inputs": {"q": 1}, "attachments": {"a": "one.png", "b": "data:image/png;base64,AAAA"}}
    (example,) = to_examples([(1, odd)], "rows")
    assert json.loads(example.attachments or "") == odd["attachments"]
