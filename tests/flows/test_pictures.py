"""Pictures of examples: stored once, sent as content parts to targets and judges, and erased."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from endpoint import Endpoint, Reply, Request, completion, error, serving

from evalflows import run
from evalflows.dashboard import rendering
from evalflows.dashboard.experiments import example_page
from evalflows.dashboard.links import Links, NoLinks
from evalflows.dashboard.rendering import Query, Site
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.reference import load
from evalflows.store import Store
from evalflows.store.attachments import opened_row
from evalflows.store.erasing import Selection
from evalflows.store.retention import erase
from evalflows.store.snapshots import load_snapshot

pytestmark = pytest.mark.usefixtures("without_prefect")

ROOT = Path(__file__).parent.parent.parent
PDF = "data:application/pdf;base64," + base64.b64encode(b"%PDF-1.7 of two pages").decode()
SOUND = base64.b64encode(b"RIFF\x10\0\0\0WAVEfmt sound").decode()


def parts_of(request: Request) -> list[dict[str, Any]]:
    contents = (message["content"] for message in request["messages"])
    return [part for content in contents if isinstance(content, list) for part in content]


def texts_of(request: Request) -> str:
    return "\n".join(part["text"] for part in parts_of(request) if part["type"] == "text")


def pictures_of(request: Request) -> list[bytes]:
    urls = [part["image_url"]["url"] for part in parts_of(request) if part["type"] == "image_url"]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


def verdict(request: Request) -> Reply:
    """A judge's answer with the best value of each field."""
    fields = request["response_format"]["json_schema"]["schema"]["properties"]
    values = {"boolean": True, "integer": 1, "string": "as it is"}
    return completion(json.dumps({name: values[field["type"]] for name, field in fields.items()}))


@pytest.fixture
def charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[bytes, str]:
    """The values of the example's twelve charts, which are drawn in the folder `charts`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    rows = load("charts:rows")()
    return {Path(row["attachments"]["chart"]).read_bytes(): row["reference_outputs"]["answer"] for row in rows}


def fields_of(folder: Path, endpoint: Endpoint, **fields: Any) -> ExperimentSpec:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "attempts": 1}
    return ExperimentSpec.model_validate({"name": "charts", "connections": {"openai": connection}, **fields})


def test_the_example_of_charts_is_read_judged_stored_once_and_erased(
    tmp_path: Path, charts: dict[bytes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Request) -> Reply:
        (picture,) = pictures_of(request)
        if request["model"] == "gpt-4o-mini":
            assert [part["type"] for part in parts_of(request)] == ["text", "image_url"]
            return completion(charts[picture])
        name = next(line for line in texts_of(request).splitlines() if line.startswith("[image 1: chart"))
        assert name.endswith(" bytes], attached to the question") and "base64" not in texts_of(request)
        assert parts_of(request)[-1]["type"] == "image_url" and parts_of(request)[-2]["text"].startswith("[BEGIN ")
        return verdict(request)

    with serving(Endpoint(answer=answer)) as endpoint:
        given = yaml.safe_load((ROOT / "examples" / "charts.yaml").read_text(encoding="utf-8"))
        result = run(fields_of(tmp_path, endpoint, **given))
        assert endpoint.calls == 24 + 1, "each, and a trial of the judge"
        run(fields_of(tmp_path, endpoint, **given))  # answered by the ledger, whose keys have the pictures' hashes
        assert endpoint.calls == 24 + 1
    store = Store()
    scores = store.query("select metric, count(*), min(value), max(value) from scores group by 1 order by 1")
    assert scores == [("exact_match", 24, 1.0, 1.0), ("read", 24, 1.0, 1.0)], result
    assert store.query("select count(*), sum(n_bytes) from attachments") == [(12, sum(map(len, charts)))]
    kept = [path for path in Path(store.layout.root).rglob("*.parquet") if "/attachments/" not in str(path)]
    first = base64.b64encode(next(iter(charts))).decode()
    texts = store.query("select request from calls") + store.query("select inputs, attachments from examples")
    assert kept and not any(first[40:80] in str(row) for row in texts)
    shown = {"experiment": [result[0]], "id": ["chart00"]}
    page = str(example_page(Site(store=store, links=Links()), Query(shown)).body)
    monkeypatch.setattr(rendering, "SMALL_PICTURE", 100)
    in_file = str(example_page(Site(store=store, links=NoLinks()), Query(shown)).body)
    picture = f'<img class="attached" loading="lazy" alt="attached image" src="data:image/png;base64,{first}"'
    assert picture in page and picture not in in_file and "[image: chart00.png, " in in_file
    erased = erase(store, Selection(examples=["chart03"]), None)
    assert erased.rows["attachments"] == 1
    assert store.query("select count(*) from attachments") == [(11,)]
    assert store.query("select count(*) from examples where attachments::varchar like '%chart03%'") == [(0,)]


def looks(inputs: dict[str, Any], attachments: dict[str, str]) -> str:
    """A target in Python that says what it got of the first message and of the attachments."""
    return digest(inputs["messages"][0]["content"], attachments)


def digest(*values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def has_contents(inputs: dict[str, Any], attachments: dict[str, str], example: Any) -> bool:
    return "attachment:" not in json.dumps([inputs, attachments, example.inputs, example.attachments])


def test_parts_reach_models_functions_and_judges_and_a_model_without_eyes_fails(
    tmp_path: Path, charts: dict[bytes, str], capsys: pytest.CaptureFixture[str]
) -> None:
    picture, other = [*charts][:2]
    content = [
        {"type": "text", "text": "What do these say?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(picture).decode()}},
        {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
        {"type": "file", "file": {"filename": "terms.pdf", "file_data": PDF}},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
    ]
    rows = [
        {"id": name, "inputs": {"messages": [{"role": "user", "content": said}]}, "reference_outputs": "Paris"}
        for name, said in (("a", content), ("b", "Hello"))
    ]
    rows[0]["attachments"] = ["chart01.png"]
    (tmp_path / "charts" / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def answer(request: Request) -> Reply:
        if request["model"] == "blind" and parts_of(request):
            return error(400, "This model does not support image input")
        return verdict(request) if "response_format" in request else completion("Paris")

    judge = {"use": "correctness", "connection": "openai"}
    with serving(Endpoint(answer=answer)) as endpoint:
        run(
            fields_of(
                tmp_path,
                endpoint,
                dataset=str(tmp_path / "charts" / "rows.jsonl"),
                targets=[
                    {"name": "sees", "kind": "chat", "connection": "openai", "model": "sees"},
                    {"name": "blind", "kind": "chat", "connection": "openai", "model": "blind"},
                    {"name": "code", "kind": "python", "function": f"{__name__}:looks"},
                ],
                evaluators=[
                    {**judge, "name": "told", "model": "told"},
                    {**judge, "name": "shown", "model": "shown", "sees": ["image", "file"]},
                    f"{__name__}:has_contents",
                ],
                compare={
                    "evaluators": [
                        {"use": "pairwise_preference", "connection": "openai", "model": "pairs", "sees": ["image"]}
                    ]
                },
            )
        )
        asked = {r["model"]: r for r in endpoint.requests if "What do these say" in json.dumps(r)}
    assert parts_of(asked["sees"])[:-1] == content, "as the row has them, the attachment after them"
    assert base64.b64decode(parts_of(asked["sees"])[-1]["image_url"]["url"].partition(",")[2]) == other
    told = asked["told"]["messages"][0]["content"]
    assert isinstance(told, str) and SOUND not in told and "base64" not in told
    assert "[image: image/png, " in told and "[file: application/pdf, 21 bytes, not shown]" in told
    assert "chart01.png, 505 bytes, not shown]" in told.partition("files that you cannot see")[2]
    kinds = [part["type"] for part in parts_of(asked["shown"])]
    assert kinds == ["text", *("text", "image_url"), *("text", "file"), *("text", "image_url") * 2]
    assert "[audio: audio/wav, 21 bytes, not shown]" in texts_of(asked["shown"])
    assert parts_of(asked["shown"])[4]["file"]["file_data"] == PDF
    assert "[image 4: chart01.png, 505 bytes], attached to the question" in texts_of(asked["shown"])
    assert [part["type"] for part in parts_of(asked["pairs"])].count("image_url") == 3
    store, printed = Store(), capsys.readouterr().err
    assert (
        "told: the judge gets only the name of each audio, file, image; to show it, set sees: [audio, file, image]"
        in printed
    )
    states = dict(
        store.query(
            "select e.target, o.status from outputs o join experiments e using (experiment_id) where example_id = 'a'"
        )
    )
    assert states == {"sees": "ok", "blind": "failed", "code": "ok"}
    (said,) = store.query("select error, outputs from outputs where status = 'failed'")
    assert "does not support image input" in said[0] and said[1] is None
    (got,) = store.query(
        "select o.outputs->>'output' from outputs o join experiments e using (experiment_id)"
        " where target = 'code' and example_id = 'a'"
    )
    assert got[0] == digest(content, {"value": ["data:image/png;base64," + base64.b64encode(other).decode()]})
    values = store.query("select distinct value from scores where metric = 'has_contents' and status = 'scored'")
    assert values == [(1.0,)]
    assert store.query("select count(*) from attachments") == [(4,)]
    (snapshot,) = {snapshot for (snapshot,) in store.query("select snapshot_id from experiments")}
    kept = next(row for row in load_snapshot(store, snapshot) if row.example_id == "a")
    assert (
        "attachment:" in kept.inputs and json.loads(opened_row(store, kept).inputs)["messages"][0]["content"] == content
    )
    failed = store.query(
        "select distinct status, value from scores where run_id in (select run_id from outputs where error is not null)"
    )
    assert failed == [("failed", None)]
    assert not [row for row in store.query("select request from calls") if SOUND in row[0] or PDF in row[0]]


@pytest.mark.parametrize(
    ("attached", "problem"),
    [
        (
            "chart.jpg",
            "attachments: 'chart.jpg': got content of the type image/png, wanted image/jpeg, as its name says",
        ),
        ("none.png", "attachments: 'none.png': cannot be read in "),
        ("../secret.png", "attachments: '../secret.png': got a path that leads out of "),
        ("huge.pdf", "attachments: 'huge.pdf': got 20.0 MB, wanted at most 20 MB"),
        ("data:image/png;base64,AAAA", r"attachments: got content that begins with b'\x00\x00\x00', wanted image/png"),
        ({"a": "notes.docx"}, "example '1': attachments: got 'notes.docx', wanted the path or data URL of a PNG"),
    ],
)
def test_what_is_not_what_its_name_says_is_refused_before_anything_is_paid(
    tmp_path: Path, charts: dict[bytes, str], attached: object, problem: str
) -> None:
    (tmp_path / "chart.jpg").write_bytes(next(iter(charts)))
    with (tmp_path / "huge.pdf").open("wb") as file:
        file.write(b"%PDF-1.7")
        file.truncate(20_000_001)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": "1", "inputs": "What?", "attachments": attached}))
    with serving(Endpoint()) as endpoint:
        target = {"name": "sees", "kind": "chat", "connection": "openai", "model": "sees"}
        with pytest.raises(InputError) as raised:
            run(fields_of(tmp_path, endpoint, dataset=str(rows), targets=[target], evaluators=["exact_match"]))
        assert problem in str(raised.value) and endpoint.calls == 0
