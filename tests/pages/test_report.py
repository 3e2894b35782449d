"""A report is one file: the pages' tables and plots, links only within it, no script, nothing from outside."""

import base64
import hashlib
import re
import zipfile
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from markupsafe import Markup

from evalflows.cli.main import cli
from evalflows.dashboard.links import Links, NoLinks
from evalflows.dashboard.rendering import Page, Site, one_file
from evalflows.dashboard.report_file import report_on, site_in_file
from evalflows.reports.markdown_pages import ReportedComparison, ReportedDecision, ReportedExperiments, reported
from evalflows.store.files import FORMAT
from evalflows.store.store import Store

HOSTILE = "<script>alert(1)</script> \u202ered"


class Html(HTMLParser):
    """The tags of a file with their attributes, and the texts by tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br", "link"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)

    def values(self, attribute: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(attribute)) is not None]


ROOT = Path(__file__).parent.parent.parent


def fill() -> Store:
    """Two experiments, a decision and a comparison."""
    store = Store()
    with zipfile.ZipFile(ROOT / f"tests/store/kept/format_{FORMAT}.zip") as archive:
        archive.extractall(store.layout.root)
    return store


@pytest.fixture
def site() -> Site:
    return Site(store=Store(), links=NoLinks())


def check_alone(html: str) -> Html:
    """Check that a file needs nothing else, runs nothing, and that its links lead to places in it, each once."""
    page = Html(html)
    assert not {tag for tag, _ in page.tags} & {"script", "form", "input", "link", "iframe", "base", "object"}
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on") or name == "style"]
    assert all(address.startswith("data:image/") for address in page.values("src"))
    assert not page.values("data-load") and not page.values("action")
    ids = Counter(page.values("id"))
    assert max(ids.values()) == 1
    assert {*page.values("href")} <= {f"#{one}" for one in ids}
    assert "url(" not in html and "@import" not in html
    (style,) = page.texts["style"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    styled = f"style-src 'sha256-{digest}'"
    assert policy == f"default-src 'none'; img-src data:; {styled}; base-uri 'none'; form-action 'none'"
    return page


def test_pages_stand_below_a_table_of_contents(site: Site) -> None:
    pages = [Page(title=title, body=Markup(f"<p>body {title}</p>")) for title in ("one", "two")]
    page = check_alone(one_file("both", pages, site))
    assert page.texts["h1"] == ["both"] and page.texts["h2"] == ["one", "two"]
    assert page.values("href") == ["#content", "#part-1", "#part-2"]
    assert page.texts["p"] == ["body one", "body two"]
    assert "contents" not in check_alone(one_file("one", pages[:1], site)).values("class")


def test_titles_are_text(site: Site) -> None:
    page = check_alone(one_file(HOSTILE, [Page(title=HOSTILE, body=Markup(""))] * 2, site))
    shown = "<script>alert(1)</script> \\u202ered"
    assert page.texts["h1"] == [shown] and page.texts["h2"] == [shown] * 2


def test_links_within_a_file_are_to_its_pages_only(site: Site) -> None:
    links = site_in_file(site.store, [Links().experiment("exp-1"), Links().compare("exp-0", "exp-1")]).links
    assert (links.experiment("exp-1"), links.experiment("exp-2")) == ("#part-1", None)
    assert (links.compare("exp-0", "exp-1"), links.compare("exp-1", "exp-0")) == ("#part-2", None)
    assert links.page() is None and links.flow_run("run-1") is None


@pytest.mark.slow
def test_a_report_has_the_pages_of_what_was_asked_about(filled: Store) -> None:
    ((decision, candidate, gate),) = filled.query(
        "select decision_id, candidate_experiment_id, gate from source.decisions"
    )
    ((comparison,),) = filled.query("select comparison_id from source.comparison_sets")
    assert isinstance(reported(filled, gate), ReportedDecision)
    for reference, kind, wanted in (
        (candidate, ReportedExperiments, ("Rules", "Metrics", "Examples")),
        (decision[:8], ReportedDecision, ("Rules", "Metrics", "Examples")),
        (comparison, ReportedComparison, ("Win rates", "Pairs")),
    ):
        found = reported(filled, reference)
        assert isinstance(found, kind)
        html = report_on(found)
        page = check_alone(html)
        first, *folded = html.split('<details class="part"')
        if kind != ReportedComparison:
            assert len(folded) >= 2 and 'class="headline' in first and "whisker" in first
            assert re.search("(Worst|Best) by", first)
            assert "Examples with all answers" not in first and "Examples with all answers" in "".join(folded)
        assert {*wanted} <= {*page.texts["h2"]}
        assert page.values("viewbox"), "plots"


@pytest.mark.slow
def test_the_command_writes_every_format(filled: Store, tmp_path: Path) -> None:
    def asked(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli, ["report", *arguments])
        assert done.exit_code == code, done.output
        return done.stdout if code == 0 else done.stderr

    ((decision,),) = filled.query("select decision_id from source.decisions")
    ((comparison,),) = filled.query("select comparison_id from source.comparison_sets")
    file = tmp_path / "report.html"
    file.write_text("earlier")
    assert asked(decision, "-o", str(file)) == f"wrote {file}\n"
    check_alone(file.read_text(encoding="utf-8"))
    assert asked(decision, "-o", "-").startswith("<!doctype html>")
    assert asked(decision, "--format", "md").startswith("## ")
    assert asked(decision, "--format", "json").startswith("{\n")
    asked(decision, "-o", str(tmp_path / "a.xml"))
    assert (tmp_path / "a.xml").read_text().startswith("<?xml")
    assert re.match(r"- .* against ", asked(comparison, "--format", "md"))
    assert "wanted -o FILE.html" in asked(decision, code=2)
    assert "junit: got a comparison" in asked(comparison, "--format", "junit", code=2)
    assert "cannot be written" in asked(decision, "-o", str(tmp_path / "no" / "x.html"), code=2)
    assert "not in " in asked("nothing", "--format", "md", code=2)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a.xml", "report.html"]
