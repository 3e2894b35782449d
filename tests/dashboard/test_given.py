"""What pages send: only our own pages may, only JSON, and each mistake is one line."""

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from difflib import unified_diff
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from labelled import judged
from matched import asked
from page_client import page_client
from starlette.testclient import TestClient

from evalflows.dashboard.app import MOST_BYTES
from evalflows.dashboard.modes import FILE as FILE_OF_MODES
from evalflows.specs.errors import InputError
from evalflows.specs.failure_modes import ModeSpec, adding, edit, load_taxonomy, split

HERE = {"origin": "http://127.0.0.1:4280"}


@pytest.fixture
def address() -> str:
    return f"/review/{judged('small', {'q0': 1.0, 'q1': 0.0})}"


@pytest.fixture
def browser(address: str) -> TestClient:
    return page_client()


@pytest.fixture
def item(browser: TestClient, address: str) -> str:
    return re.findall(r'data-item="(\w+)"', browser.get(f"{address}?metric=correct&by=ann").text)[0]


def sent(browser: TestClient, address: str, content: Any, headers: Mapping[str, str] = HERE) -> tuple[int, str]:
    """The status of the answer, and its error."""
    answer = browser.post(address, json=content, headers=headers)
    return answer.status_code, answer.json().get("error", "") if "json" in answer.headers["content-type"] else ""


def test_a_label_is_stored_before_the_answer(browser: TestClient, address: str, item: str) -> None:
    label = {"item": item, "answer": "no", "comment": None}
    assert sent(browser, f"{address}/labels?metric=correct&by=ann", label) == (200, "")
    assert asked("select value, labeller, source from labels") == [(0.0, "ann", "review")]


def test_what_is_wrong_is_refused_in_one_line(browser: TestClient, address: str, item: str) -> None:
    labels, good = f"{address}/labels?metric=correct&by=ann", {"item": item, "answer": "no"}
    for content, where, error in (
        ({"answer": "no"}, labels, "item: got none"),
        ({"item": item, "answer": "maybe"}, labels, "value: got 'maybe', wanted one of: yes, no"),
        ({"item": "x", "answer": "no"}, labels, "item: got 'x'"),
        ([1], labels, "got no JSON object of texts"),
        ({"item": 3}, labels, "got no JSON object of texts"),
        (good | {"comment": "x" * MOST_BYTES}, labels, f"got more than {MOST_BYTES} bytes"),
        (good, f"{address}/labels?metric=correct", "by: got none"),
        (good, "/review/nothing/labels?metric=correct&by=ann", "experiment 'nothing'"),
    ):
        status, got = sent(browser, where, content)
        assert (status, got.startswith(error)) == (404 if "nothing" in where else 400, True), got
        assert "\n" not in got
    assert asked("select count(*) from labels") == [(0,)]


def test_other_sites_and_other_content_types_store_nothing(browser: TestClient, address: str, item: str) -> None:
    labels, label = f"{address}/labels?metric=correct&by=ann", {"item": item, "answer": "no"}
    assert sent(browser, labels, label, {"origin": "http://evil.example"})[0] == 403
    assert sent(browser, labels, label, {"sec-fetch-site": "cross-site"})[0] == 403
    form = {"content-type": "application/x-www-form-urlencoded"} | HERE
    assert sent(browser, labels, label, form) == (400, "got another content type, wanted application/json")
    assert browser.get(labels).status_code == 404
    never_looked = TestClient(browser.app, base_url="http://127.0.0.1:4280")  # a program
    assert sent(never_looked, labels, label) == (403, "not sent by a page of this dashboard; reload the page")
    assert asked("select count(*) from labels") == [(0,)]


FILE = """\
# What goes wrong.
modes:
  - name: late  # seen most
    definition: "It comes: late"
    examples: [a b, </pre><script>x</script>]
  # about people
  - name: rude
    definition: It insults.
    examples:
      - one  # from May
      - "two"
      - three
"""


@pytest.mark.parametrize(
    ("mode", "asked_for", "lines"),
    [
        (
            "late",
            "do=rename&to=slow&definition=It+comes:+late",
            ["-  - name: late  # seen most", "+  - name: slow  # seen most"],
        ),
        ("rude", "do=confirm", ["+    since: TODAY"]),
        ("rude", "do=close", ["+    status: closed", "+    since: TODAY"]),
        (
            "late",
            "do=merge&into=rude",
            [
                "-  - name: late  # seen most",
                '-    definition: "It comes: late"',
                "-    examples: [a b, </pre><script>x</script>]",
                "+      - a b",
                "+      - </pre><script>x</script>",
            ],
        ),
        (
            "rude",
            "do=split&to=cruel&definition=It+is%0D%0Acruel.&example=1",
            ["+      - three", "+  - name: cruel", "+    definition: It is cruel.", "+    examples:", "-      - three"],
        ),
    ],
)
def test_the_file_of_modes_is_edited_as_a_person_would(
    mode: str, asked_for: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows what would change, and writes that; comments, order and quotes stay."""
    monkeypatch.chdir(tmp_path)
    Path("failure_modes.yaml").write_text(FILE)
    browser = page_client()
    address = f"/modes/{mode}?{asked_for}"
    page = browser.get(address).text
    assert Path("failure_modes.yaml").read_text() == FILE and "<script>x" not in page
    (seen,) = {*re.findall(r'name="seen" value="(\w+)"', page)}
    expected = [one.replace("TODAY", f"{datetime.now(UTC):%Y-%m-%d}") for one in lines]
    changed = re.findall(r"<(?:ins|del)>(.*?)</(?:ins|del)>", page)
    assert [*map(unescape, changed)] == expected
    (to,) = (unescape(one) for one in re.findall(r'data-post="(/modes/[^"]*)"', page))
    assert sent(browser, to, {"seen": seen}, {"origin": "http://evil.example"})[0] == 403
    assert sent(browser, to, {"seen": seen}) == (200, "")
    written = Path("failure_modes.yaml").read_text()
    assert lines_changed(FILE, written) == expected
    assert sent(browser, to, {"seen": seen}) == (
        409,
        "failure_modes.yaml: changed since it was shown, so nothing was written",
    )
    assert Path("failure_modes.yaml").read_text() == written


def test_an_edit_of_another_version_of_the_file_is_refused_with_the_page_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples are given by their places, which are others in another version."""
    monkeypatch.chdir(tmp_path)
    Path("failure_modes.yaml").write_text(FILE)
    browser = page_client()
    seen = {*re.findall(r'name="seen" value="(\w+)"', browser.get("/modes/rude").text)}
    Path("failure_modes.yaml").write_text(FILE.replace("      - one  # from May\n", ""))
    late = browser.get(f"/modes/rude?do=split&to=cruel&definition=x&example=0&seen={seen.pop()}").text
    assert "failure_modes.yaml: changed since it was shown" in late and "<ins>" not in late
    assert not seen and "from May" not in late and '> <span dir="auto">two</span>' in late


def test_edits_at_once_are_all_kept_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("failure_modes.yaml").write_text(FILE)
    browser = page_client()
    (seen, *_) = re.findall(r'name="seen" value="(\w+)"', browser.get("/modes/rude").text)
    renamed = [f"/modes/rude?do=rename&to=mode_{number}&definition=x" for number in range(12)]
    with ThreadPoolExecutor(len(renamed)) as pool:
        answers = [*pool.map(lambda to: sent(browser, to, {"seen": seen})[0], renamed)]
        [*pool.map(lambda number: edit(FILE_OF_MODES, adding([mode(f"new_{number}")])), range(12))]
    assert sorted(answers) == [200] + 11 * [409]
    assert len(load_taxonomy(FILE_OF_MODES).names) == 2 + 12


def test_a_link_to_the_file_of_modes_and_its_permissions_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "ours.yaml", tmp_path / "failure_modes.yaml"
    file.write_text(FILE)
    file.chmod(0o640)
    link.symlink_to(file)
    edit(link, adding([mode("new")]))
    assert link.is_symlink() and load_taxonomy(file).names[-1] == "new" and file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", ["modes: 3", "- 1", "hello", "modes: [3]", "modes: {a: b}", "a: [", "\0"])
def test_an_unexpected_file_of_modes_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "failure_modes.yaml").write_text(text)
    for change in (adding([mode("new")]), split("late", "x", "y", [0])):
        with pytest.raises(InputError, match=r"failure_modes\.yaml: (modes|got|not YAML)"):
            edit(tmp_path / "failure_modes.yaml", change)
    assert (tmp_path / "failure_modes.yaml").read_text() == text


@pytest.mark.parametrize(
    ("asked_for", "said"),
    [
        ("late?do=rename&to=rude&definition=x", "failure_modes.yaml: modes: got &#39;rude&#39; twice"),
        ("late?do=rename&to=slow", "definition: got none"),
        ("late?do=rename&to=a+b&definition=x", "failure_modes.yaml: modes.0.name: String should match"),
        ("late?do=split&to=x&definition=y&example=7", "split: got examples [7] of late"),
        ("late?do=merge&into=late", "merge: got &#39;late&#39; into itself"),
        ("late?do=forget", "do: got &#39;forget&#39;, wanted one of rename"),
    ],
)
def test_a_wrong_edit_of_the_file_of_modes_is_one_line(
    asked_for: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("failure_modes.yaml").write_text(FILE)
    browser = page_client()
    answer = browser.get(f"/modes/{asked_for}")
    assert answer.status_code == 400 and said in answer.text, answer.text
    unknown = browser.get("/modes/none")
    assert unknown.status_code == 404 and "no failure mode &#39;none&#39;, wanted one of late, rude" in unknown.text


def mode(name: str) -> ModeSpec:
    return ModeSpec(name=name, definition="It is new.")


def lines_changed(before: str, after: str) -> list[str]:
    lines = [*unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")][2:]
    return [line for line in lines if not line.startswith("@@")]
