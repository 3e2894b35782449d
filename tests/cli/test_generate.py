"""evalflows dataset generate and export, and what becomes of drafts: left out, reviewed on a page, kept in a file."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from endpoint import Endpoint, Reply, Request, completion, serving
from matched import asked
from page_client import page_client

from evalflows import run
from evalflows.cli.main import cli
from evalflows.engine.passages import LONGEST, read_passages
from evalflows.llm import local
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import InputError
from evalflows.store import Store
from evalflows.store.snapshots import current_snapshot, load_snapshot

CITIES = ("Rome", "Oslo", "Lima", "Bern", "Cairo", "Delhi", "Accra", "Quito")
HERE = {"origin": "http://127.0.0.1:4280"}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "is_installed", lambda: False)  # near duplicates by their words, unless a test says so
    Path("docs").mkdir()
    for city in CITIES:
        Path(f"docs/{city}.md").write_text(f"# {city}\n\nThe *shop* in {city}\nopens at nine. It has two floors.\n")


def passages_in(request: Request) -> list[str]:
    found = re.findall(
        r"Passage \d+:\n\[BEGIN (\w+)\]\n(.*?)\n\[END \1\]", request["messages"][0]["content"], re.DOTALL
    )
    return [text for _, text in found]


def writer(request: Request) -> Reply:
    """Asks about the cities of its passages, and quotes them in other case and without their marks."""
    cities = [text.split()[1] for text in passages_in(request)]
    if "why" in request["response_format"]["json_schema"]["schema"]["properties"]:
        return completion(json.dumps({"question": f"{cities[0]}: who owns it?", "why": "No owner is named."}))
    quotes = [f"the shop in {city.upper()} opens" for city in cities]
    asked = {"question": f"{' and '.join(cities)}: open at {len(cities) + 8}?", "answer": "Nine.", "quotes": quotes}
    return completion(json.dumps(asked))


def connected(endpoint: Endpoint, **settings: Any) -> None:
    price = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 2.0}
    mine = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", **price, **settings}
    Path("connections.yaml").write_text(json.dumps({"mine": mine}))


def said(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["dataset", *arguments])
    assert done.exit_code == code, done.output or done.exception
    return done.output


def generated(*arguments: str, to: str = "qa", code: int = 0) -> str:
    return said("generate", *arguments, "--to", to, "--connection", "mine", code=code)


def rows_of(name: str) -> list[dict[str, Any]]:
    store = Store()
    rows = load_snapshot(store, current_snapshot(store, name) or "")
    return [
        {field: json.loads(getattr(row, field)) for field in ("inputs", "reference_outputs", "metadata")}
        for row in rows
    ]


def test_each_kind_rests_on_passages_and_is_paid_once(store: Store) -> None:
    """What is quoted is found whatever its case, blanks and marks, and kept as the document has it."""
    with serving(Endpoint(answer=writer)) as endpoint:
        connected(endpoint)
        plan = generated("docs", "-n", "8", "--plan")
        assert "8 calls to m (mine)" in plan and "at most about 0.01" in plan and not endpoint.calls
        out = generated("docs", "-n", "8")
        assert "8 examples; 8 drafts added (simple 2, several 2, unanswerable 2, adversarial 2)" in out
        assert "8 calls paid" in out and endpoint.calls == 8
        out = generated("docs", "-n", "8")
        assert "0 drafts added" in out and "8 already in the dataset" in out and "0 calls paid" in out
        plan = generated("docs", "-n", "10", "--plan")
        assert "10 calls to m (mine), of which 8 are in the ledger and not paid again: at most about 0.00" in plan
        assert endpoint.calls == 8
    rows = {row["metadata"]["kind"]: row for row in rows_of("qa")}
    several, unanswerable = rows["several"], rows["unanswerable"]
    first, second = several["reference_outputs"]["contexts"]
    city = first["text"].split()[1]
    assert first == {
        "id": f"docs/{city}.md#1",
        "text": f"# {city}\n\nThe *shop* in {city}\nopens at nine. It has two floors.",
        "quote": f"The *shop* in {city}\nopens",
    }
    assert several["metadata"]["passages"] == [first["id"], second["id"]] and first["id"] != second["id"]
    assert unanswerable["reference_outputs"] == {
        "answer": "This cannot be answered from the documents.",
        "contexts": [],
    }
    assert unanswerable["metadata"]["why"] == "No owner is named."
    for row in rows.values():
        assert row["metadata"]["draft"] is True and row["metadata"]["generated_by"] == "mock-1", row
        assert re.fullmatch("[0-9a-f]{16}", row["metadata"]["prompt"]) and row["metadata"]["sources"]


def test_what_rests_on_nothing_fails_or_resembles_another_is_counted(store: Store) -> None:
    def answer(request: Request) -> Reply:
        city = passages_in(request)[0].split()[1]
        if city == "Rome":
            return completion("no JSON")
        said = {
            "question": f"When does the shop in {city} open in the morning of a day?",
            "answer": "Nine.",
            "quotes": [],
        }
        if city != "Oslo":
            said["quotes"] = [f"The shop in {city} opens"]
        if city in ("Bern", "Lima"):
            said["question"] = f"Say, please: how many floors does this one shop of theirs have in {city}?"
        if city == "Cairo":
            said["question"] = "Where is it?"
        return completion(json.dumps(said))

    Path("known.jsonl").write_text('{"inputs": "where is IT?"}\n')
    with serving(Endpoint(answer=answer)) as endpoint:
        connected(endpoint, attempts=2)
        out = generated("docs", "-n", "8", "--kinds", "simple", "--besides", "known.jsonl", to="qa.jsonl")
        assert endpoint.calls == 9  # what could not be read was asked again
        assert "qa.jsonl: 2 drafts added (simple 2)" in out
        assert (
            "4 near duplicates (by their words" in out
            and "1 whose quotations are not in the passages" in out
            and "1 failed: " in out
        )
        assert "exists, wanted a new file" in generated("docs", to="qa.jsonl", code=2)
        endpoint.answer = lambda _: completion("no JSON")
        assert "no draft was written: " in generated("docs", "-n", "1", "--kinds", "adversarial", code=4)
    assert [json.loads(line)["metadata"]["kind"] for line in Path("qa.jsonl").read_text().splitlines()] == [
        "simple"
    ] * 2


@pytest.mark.skipif(not local.is_installed(), reason="needs the extra embeddings")
def test_near_duplicates_are_told_by_meaning(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "is_installed", lambda: True)
    asked = iter(
        ("How do I get a refund?", "How can I obtain a refund?", "How do I cancel plan A?", "How do I cancel plan B?")
    )

    def answer(request: Request) -> Reply:
        quotes = [" ".join(text.split()[:2]) for text in passages_in(request)]
        return completion(json.dumps({"question": next(asked), "answer": "So.", "quotes": quotes}))

    with serving(Endpoint(answer=answer)) as endpoint:
        connected(endpoint)
        out = generated("docs", "-n", "4", "--kinds", "simple", to="near.jsonl")
    assert "3 drafts added" in out and "1 near duplicates (by embeddings)" in out


def test_a_budget_ends_it_with_what_was_paid_and_a_killed_one_goes_on(store: Store, tmp_path: Path) -> None:
    def paid(request: Request) -> Reply:
        reply = writer(request)
        return replace(reply, body=reply.body | {"usage": {"prompt_tokens": 500, "completion_tokens": 300}})

    with serving(Endpoint(latency_s=0.2, answer=paid)) as endpoint:
        connected(endpoint, max_in_flight=1)
        assert "no draft was written: the next call, of at most" in generated("docs", "--budget", "0.0001", code=4)
        assert endpoint.calls == 0
        out = generated("docs", "-n", "8", "--budget", "0.004", to="cheap")
        n_paid = endpoint.calls
        assert 0 < n_paid < 8 and f"{8 - n_paid} not asked, since the budget is spent" in out
        command = [sys.executable, "-P", "-m", "evalflows.cli.main", "dataset", "generate", "docs", "--to", "killed"]
        killed = subprocess.Popen(
            [*command, "--connection", "mine", "-n", "8", "--seed", "1"], stderr=subprocess.DEVNULL
        )
        while endpoint.calls < n_paid + 4:
            time.sleep(0.02)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        endpoint.latency_s = 0.0
        assert "8 drafts added" in generated("docs", "-n", "8", "--seed", "1", to="killed")
        assert endpoint.repeated() <= 1  # the one that was in flight


def test_examples_are_written_like_others(store: Store) -> None:
    asked_for = iter(("Who pays for the trip?", "When is lunch served today?"))

    def answer(request: Request) -> Reply:
        fields = request["response_format"]["json_schema"]["schema"]["properties"]
        assert fields["inputs"]["properties"] == {"question": {"type": "string"}, "size": {"type": "number"}}
        assert [*fields["reference_outputs"]["properties"]] == ["answer"]
        inputs = {"question": next(asked_for), "size": 2}
        return completion(json.dumps({"inputs": inputs, "reference_outputs": {"answer": "So."}}))

    few = [
        {"inputs": {"question": f"{word}?", "size": size}, "outputs": {"answer": "Yes."}}
        for word, size in (("Why", 1), ("How", 2.5))
    ]
    Path("few.jsonl").write_text("\n".join(map(json.dumps, few)))
    Path("few.csv").write_text("question,answer\nWhy?,So.\n")
    Path("chats.jsonl").write_text(json.dumps({"inputs": {"messages": [{"role": "user", "content": "Hi"}]}}))
    with serving(Endpoint(answer=answer)) as endpoint:
        connected(endpoint)
        assert "2 drafts added (like 2)" in generated("few.jsonl", "-n", "2")
        assert "1 call to m" in generated("few.csv", "--inputs", "question", "-n", "1", "--plan")
        assert "inputs.messages: got list, wanted examples whose fields are texts" in generated("chats.jsonl", code=2)
    assert [row["metadata"]["kind"] for row in rows_of("qa")] == ["like", "like"]


def test_drafts_are_left_out_until_somebody_accepts_them_on_the_page(store: Store) -> None:
    with serving(Endpoint(answer=writer)) as endpoint:
        connected(endpoint)
        generated("docs", "-n", "4", "--kinds", "simple")
    assert "got only drafts (4), wanted --drafts" in said("export", "qa", "out.jsonl", code=2)
    assert "4 examples, of which 4 are drafts" in said("show", "qa")
    browser = page_client()
    assert (
        ">Review qa</a>" in browser.get("/review").text
        and "4 of the newest version are drafts" in browser.get("/datasets/qa").text
    )

    def answered(do: str, **texts: str) -> str:
        page = browser.get(browser.address).text  # type: ignore[attr-defined]
        (address,) = (one.replace("&amp;", "&") for one in re.findall(r'data-post="(/review-drafts[^"]*)"', page))
        (seen,) = re.findall(r'name="seen" value="(\w+)"', page)
        sent = {"do": do, "by": "ann", "seen": seen} | texts
        answer = browser.post(address, json=sent, headers=HERE)
        assert answer.status_code == 200, answer.text
        again = browser.post(address, json=sent, headers=HERE)
        assert again.status_code in (400, 404) and "\n" not in again.json()["error"]
        browser.address = answer.json()["location"]  # type: ignore[attr-defined]
        return page

    browser.address = "/review-drafts?dataset=qa"  # type: ignore[attr-defined]
    page = answered("accepted")
    assert all(f'data-key="{key}"' in page for key in "aers") and "4 drafts left among 4 examples" in page
    answered("accepted", **{"inputs.question": "Is it open?", "reference_outputs.contexts": "[]"})
    answered("rejected")
    as_it_was, edited, draft = rows_of("qa")
    assert (
        as_it_was["metadata"].keys() >= {"generated_by", "prompt", "accepted_by"}
        and "drafted" not in as_it_was["metadata"]
    )
    assert edited["inputs"] == {"question": "Is it open?"} and edited["reference_outputs"] == {
        "answer": "Nine.",
        "contexts": [],
    }
    assert edited["metadata"]["accepted_by"] == "ann" and "draft" not in edited["metadata"]
    assert edited["metadata"]["drafted"]["inputs"]["question"].endswith("open at 9?")
    assert edited["metadata"]["drafted"]["reference_outputs"]["contexts"]
    assert draft["metadata"]["draft"] is True
    assert "out.jsonl: 2 examples; 1 drafts left out" in said("export", "qa", "out.jsonl")
    assert "exists, wanted another name" in said("export", "qa", "out.jsonl", code=2)
    Path("seen.jsonl").write_text(
        '{"inputs": "What is it?", "attachments": {"a": "data:image/png;base64,iVBORw0KGgo="}}'
    )
    assert "1 added" in said("add", "seen.jsonl") and "seen.jsonl: 1 examples" in said(
        "export", "seen", "seen.jsonl", "--replace"
    )
    assert "data:image/png;base64,iVBORw0KGgo=" in Path("seen.jsonl").read_text()
    assert "1 unchanged" in said("add", "seen.jsonl")
    assert "qa: " in said("add", "out.jsonl", "--name", "qa", "--replace")
    assert "1 removed, 2 unchanged" in said("diff", "qa")
    with serving(Endpoint(answer=writer)) as endpoint:  # what was rejected, or is accepted, does not come back
        connected(endpoint)
        assert "4 already in the dataset" in generated("docs", "-n", "4", "--kinds", "simple")
    assert "Nothing is left to review" in browser.get("/review-drafts?dataset=qa").text


def test_documents_that_cannot_be_read_are_one_line(store: Store) -> None:
    with serving(Endpoint(answer=writer)) as endpoint:
        connected(endpoint)
        Path("empty.md").write_text(" \n")
        Path("none").mkdir()
        Path("latin.txt").write_bytes("caf\xe9".encode("latin-1"))
        Path("one.md").write_text("Only one passage.")
        for arguments, message in (
            (("empty.md",), "empty.md: got an empty document, wanted text in it"),
            (("none",), "none: got no text, wanted documents: .md"),
            (("latin.txt",), "latin.txt: not UTF-8"),
            (("no.md",), "no.md: cannot be read: No such file"),
            (("connections.yaml",), "connections.yaml: got no document, wanted .md"),
            (("one.md", "--kinds", "several"), "one.md is one passage, wanted at least two"),
            (("one.md", "--kinds", "simple,hard"), "kinds: got 'hard', wanted some of simple, several"),
            (("one.md", "--kinds", ""), "kinds: got ''"),
            (("one.md", "--reference", "a"), "--reference: wanted --inputs too"),
            (("one.md", "--besides", "no.jsonl"), "no.jsonl: "),
            (("one.md", "--to", "qa.csv"), "--to: got 'qa.csv', wanted a file whose name ends in .jsonl, or a dataset"),
            (("one.md", "--to", "no/qa.jsonl"), "--to: got 'no/qa.jsonl', in a missing folder"),
        ):
            out = said("generate", "--connection", "mine", "--to", "qa", *arguments, code=2)
            assert out.startswith("evalflows: ") and out.count("\n") == 1 and message in out, out
        for n in ("0", "x", "1.5"):
            assert "Invalid value for '-n'" in generated("one.md", "-n", n, code=2)
        connected(endpoint, answer_form="text")
        assert "got answer_form text, wanted json_schema" in generated("one.md", code=2)
        assert not endpoint.calls


def pdf(text: str) -> bytes:
    """A PDF of one page."""
    drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() if text else b""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    size, fonts = b"/MediaBox [0 0 612 792]", b"/Resources << /Font << /F1 5 0 R >> >>"
    page = b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R %s %s >>" % (size, fonts)
    stream = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn)
    parts = [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>", page, stream, font]
    content, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, start=1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % len(content)
    return content + b"xref\n0 6\n" + table + trailer


def test_passages_are_cut_at_headings_and_paragraphs_of_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pypdf")
    Path("all").mkdir()
    Path("all/a.pdf").write_bytes(pdf("The shop opens at nine."))
    Path("all/b.pdf").write_bytes(pdf(""))
    Path("all/c.pdf").write_bytes(b"%PDF-1.4 nonsense")
    Path("all/d.html").write_text(
        "<title>Shop</title><style>p{}</style><h2>Returns</h2><p>In <b>30</b>\ndays.<script>x()</script>"
    )
    Path("all/e.txt").write_bytes("Größe\r\n\r\nzwei".encode("utf-16"))
    long = "word " * 1000
    Path("all/f.md").write_text(f"# A\n\n{'short ' * 60}\n\n## B\n\n{long}\n\n## C\n\nend\n")
    Path("all/.hidden.md").write_text("hidden")
    found = read_passages(["all"])
    texts = {passage.id: passage.text for passage in found}
    assert texts["all/a.pdf#1"] == "The shop opens at nine."
    assert texts["all/d.html#1"] == "Shop\n\n## Returns\n\nIn 30 days."
    assert texts["all/e.txt#1"] == "Größe\n\nzwei"
    of_f = [passage.text for passage in found if passage.source == "all/f.md"]
    assert (
        of_f[0].startswith("# A")
        and "##" not in of_f[0]
        and of_f[1].startswith("## B")
        and of_f[-1].endswith("## C\n\nend")
    )
    assert max(map(len, of_f)) <= LONGEST and " ".join(of_f).split().count("word") == 1000
    notes = capsys.readouterr().err
    assert "left out: all/b.pdf: got pages without text, wanted text: a scan needs OCR first" in notes
    assert "left out: all/c.pdf: cannot be read as PDF" in notes and ".hidden" not in " ".join(texts)


def test_runs_leave_drafts_out_and_a_gate_does_not_decide_on_them(
    store: Store, without_prefect: None, capsys: pytest.CaptureFixture[str]
) -> None:
    drafted = [{"inputs": {"text": f"{n}"}, "metadata": {"draft": n > 37}} for n in range(40)]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, drafted)))
    spec: dict[str, Any] = {
        "name": "gated",
        "dataset": {"path": "rows.jsonl"},
        "targets": [{"name": "same", "kind": "python", "function": "textwrap:dedent"}],
        "evaluators": [{"use": "json_valid"}],
        "gates": [{"name": "release", "thresholds": {"json_valid": 0.5}}],
    }
    run(ExperimentSpec.model_validate(spec))
    assert "2 drafts left out, which nobody has accepted: " in capsys.readouterr().err
    run(ExperimentSpec.model_validate(spec | {"dataset": {"path": "rows.jsonl", "drafts": True}}))
    assert "left out" not in capsys.readouterr().err
    query = "select d.conclusion, reason_code, summary from gate_decisions d join gate_rules using (decision_id)"
    decided = asked(f"{query} order by d.decided_at")
    assert [row[:2] for row in decided] == [("PASS", None), ("NOT ENOUGH EVIDENCE", "drafts")]
    assert "2 of 40 examples are drafts that nobody has accepted" in decided[1][2]
    Path("all.jsonl").write_text("\n".join(map(json.dumps, drafted[-2:])))
    with pytest.raises(InputError, match="got only drafts \\(2\\), wanted accepted examples"):
        run(ExperimentSpec.model_validate(spec | {"dataset": "all.jsonl"}))
