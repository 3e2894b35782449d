"""The dashboard in a real browser: every page of a store of everything, and of one whose texts attack."""

import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answered import answered
from axe_core_python.selenium import Axe
from click.testing import CliRunner
from dashboards import addresses, dashboard
from forms import picture, steady
from hostile_answers import spec
from production import produce, score, trace
from running_up import until
from selenium.common.exceptions import NoAlertPresentException
from selenium.webdriver import Chrome, Keys

from evalflows import run
from evalflows.cli.main import cli
from evalflows.store import connect
from evalflows.store.files import FORMAT
from evalflows.store.layout import Layout
from evalflows.store.store import Store

pytestmark = [pytest.mark.browser, pytest.mark.slow]

KEPT = Path(__file__).parent.parent / "store" / "kept" / f"format_{FORMAT}.zip"

WIDTHS = (1400, 1280, 1024, 390)
LOOKS = {
    "light": ("light", WIDTHS),
    "dark": ("dark", WIDTHS),
    "narrow": ("light", (390,)),
    "narrow dark": ("dark", (390,)),
}
"""The colour scheme of each look, and the widths at which pages are laid out, the first of which shows all else too."""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two targets, a composite, a gate, a comparison, labels, and two days of production with an alarm."""
    folder = tmp_path_factory.mktemp("everything")
    with zipfile.ZipFile(KEPT) as kept:
        kept.extractall(folder)
    labels = tmp_path_factory.mktemp("labels") / "labels.csv"
    rows = [f"kept-long,q{number:02},contains,{'no' if number == 3 else 'yes'},ben" for number in range(6)]
    labels.write_text("\n".join(["experiment,example_id,metric,value,labeller", *rows]))
    versions = [labels.with_name(f"{number}.csv") for number in (1, 2)]
    for version in versions:
        draft = 'z,Is it a draft?,yes,dev,"{""draft"": true}"'
        version.write_text(f"id,inputs,outputs,split,metadata\na,{version.stem}?,**b**,dev,{{}}\n{draft}\n")
    adding = [["dataset", "add", str(version), "--name", "faq", "--replace"] for version in versions]
    for command in (["labels", "import", str(labels)], *adding):
        done = CliRunner().invoke(cli, command, env={"EVALFLOWS_STORE": str(folder)})
        assert done.exit_code == 0, done.output
    said = score("one", "mode.rude", 1.0, evaluation="production", comment="It calls somebody a fool.")
    produce(Store(folder), trace("one", "Am I right?", "No, you fool.", version="1.0"), scores=[said])
    return folder


@pytest.fixture(scope="module")
def url(everything: Path) -> Iterator[str]:
    with dashboard(everything) as url:
        yield url


@pytest.fixture
def browser(shared_browser: Chrome) -> Chrome:
    """The browser of this module: wide and light, and without complaints of other pages."""
    look(shared_browser, "light", 1400)
    shared_browser.get_log("browser")
    return shared_browser


def look(browser: Chrome, scheme: str, width: int, height: int = 1000) -> None:
    """Set the colour scheme and the size of the page."""
    scheme_feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme_feature)
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def complaints(browser: Chrome) -> list[str]:
    """Return the errors in the console, among them what the content security policy stopped."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def violations(browser: Chrome) -> list[str]:
    """Return what axe-core finds: the rule, and the first element that breaks it."""
    found: dict[str, Any] = Axe().run(browser, options={"resultTypes": ["violations"]})
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]


def is_wider(browser: Chrome) -> bool:
    """Whether the page is wider than the window, so that it would be scrolled sideways."""
    return bool(browser.execute_script(WIDER))


WIDER = "return document.documentElement.scrollWidth > innerWidth"
CUT_OFF = """return [...document.querySelectorAll(".scroll")]
.filter((box) => box.checkVisibility({contentVisibilityAuto: true}) && box.scrollWidth > box.clientWidth)
.map((box) => `${box.ariaLabel} by ${box.scrollWidth - box.clientWidth}`)"""
LISTS_CUT_OFF = CUT_OFF.replace('".scroll"', '".scroll:has(> :is(.falls, .grouped, .modes))"')
CHARTS = """return [...document.querySelectorAll("svg.timeline, svg.histogram")].filter((one) => one.checkVisibility())
.map((one) => [one.getBoundingClientRect(), one.parentElement, getComputedStyle(one.parentElement)])
.filter(([box, of, style]) => Math.abs(
    box.width - of.clientWidth + parseFloat(style.paddingLeft) + parseFloat(style.paddingRight)) > 1)
.map(([box, of]) => `${box.width} of ${of.clientWidth}`)"""
HEIGHTS_OF_CHARTS = """return [...document.querySelectorAll(".sides, .charts")].map((some) => new Set(
[...some.querySelectorAll(":scope > .card > svg.chart")].map((one) => one.getBoundingClientRect().height)).size)"""


def faults_of_layout(browser: Chrome, width: int) -> list[str]:
    """Return what is cut off or wider than its place, in a window of this width."""
    scripts = (CUT_OFF if width > 1000 else LISTS_CUT_OFF, CHARTS, HEIGHTS_OF_CHARTS, WIDER)
    asked = ", ".join(f"(() => {{{script}}})()" for script in scripts)  # at once: an answer takes as long as a layout
    cut_off, charts, heights, wider = browser.execute_script(f"return [{asked}]")
    found = [*cut_off, *charts]
    if wider:
        found.append("wider than the window")
    if max(heights, default=0) > 1:
        found.append("charts of several heights")
    return found


@pytest.mark.parametrize(
    "name", ["light", *(pytest.param(name, marks=pytest.mark.soak) for name in LOOKS if name != "light")]
)
def test_every_page_is_whole_in_every_look(
    browser: Chrome, everything: Path, url: str, screenshots: Path, name: str
) -> None:
    problems = []
    scheme, (first, *others) = LOOKS[name]
    pages = addresses(everything)
    pages["systems over time"] = "/over-time?name=kept-long&name=kept-brief"
    for page, address in pages.items():
        look(browser, scheme, first)
        browser.get(url + address)
        title = browser.find_element("tag name", "h1").text
        found = [*complaints(browser), *violations(browser), *faults_of_layout(browser, first)]
        if title in ("Not found", "This cannot be shown"):
            found.append(browser.find_element("class name", "problem").text)
        picture(browser, screenshots / f"dashboard-{page}-{name}.png".replace(" ", "-"))
        for width in others:
            look(browser, scheme, width)
            found += [f"{width}: {one}" for one in faults_of_layout(browser, width)]
        problems += [f"{page}, {name}: {one}" for one in found]
    assert not problems, "\n".join(problems)


def rows_shown(browser: Chrome) -> list[str]:
    """Return the first links of the rows of the last table."""
    table = browser.find_elements("css selector", "table[data-rows]")[-1]
    rows = table.find_elements("css selector", "tbody > tr[tabindex]")
    return [row.find_element("css selector", "a").text for row in rows]


def listed(browser: Chrome) -> list[str]:
    """Return the texts of the listed examples of a comparison."""
    return [one.text for one in browser.find_elements("css selector", "[data-list] a")]


def test_counts_in_column_heads_filter_what_is_shown(browser: Chrome, everything: Path, url: str) -> None:
    browser.get(url + addresses(everything)["two experiments"])
    assert len(listed(browser)) == 24
    heads = browser.find_elements(
        "css selector", "a[href*='metric=short']:is([href*='=improved'], [href*='=regressed'])"
    )
    count = int(heads[0].text.split()[0])
    heads[0].click()
    until(lambda: len(listed(browser)) == count, 10)
    assert 0 < count < 24
    browser.get(url + "/experiments?q=brief")
    assert rows_shown(browser) == ["kept-brief"]


HEIGHTS = """return [...document.querySelectorAll("table.lines tbody tr")].filter((row) => row.offsetParent)
.map((row) => row.getBoundingClientRect().height)"""
TOPS = """const [list, reasons, answers] = [
    "[data-list] a", ".pane .reason", ".answers > section > :is(.text, .md)",
].map((one) => [...document.querySelectorAll(one)].map((each) => each.getBoundingClientRect()));
return [list.filter((box) => box.bottom < innerHeight).length, ...reasons.map((box) => innerHeight - box.bottom),
    ...answers.map((box) => innerHeight - box.top)]"""
ONE_LINE = """return [...document.querySelectorAll(".compared-metrics")].filter((one) => one.checkVisibility(
    {contentVisibilityAuto: true})).flatMap((table) => [...table.querySelectorAll("tbody tr, .whisker + span")].map(
    (one) => one.matches("tr") ? one.getBoundingClientRect().height - 27
        : Math.abs(one.getBoundingClientRect().top - one.previousElementSibling.getBoundingClientRect().top) - 8))"""


@pytest.mark.parametrize("changed", [6, 8])
def test_eight_metrics_and_the_first_changed_example_with_both_answers_are_on_the_first_screen(
    browser: Chrome, store_root: Path, screenshots: Path, changed: int
) -> None:
    metrics = ("answer_relevance", "cites_source", "context_precision", "correctness", "faithfulness", "helpful")
    examples = [f"q{number:02}" for number in range(30)]
    rows = [{"id": one, "inputs": f"How can I return parcel {one}, which I paid by bill?"} for one in examples]
    for place, name in enumerate(("bm25", "rerank")):
        scores = {
            metric: {
                one: (0.8 if number % 2 else 0.2) if place and number < changed else 0.5 + 0.02 * (index % 3)
                for index, one in enumerate(examples)
            }
            for number, metric in enumerate((*metrics, "structure", "tone"))
        }
        said = dict.fromkeys(examples, f"{name}: open the order, choose Return, print the label, and keep it. " * 6)
        answered(name, said, scores, place=place, rows=rows)
    with dashboard(store_root) as url:
        for scheme, width, height in (("light", 1400, 900), ("dark", 1280, 720)):
            look(browser, scheme, width, height)
            browser.get(f"{url}/compare?baseline=bm25&candidate=rerank")
            picture(browser, screenshots / f"compare-{changed}-{width}.png")
            listed, *room = browser.execute_script(TOPS)
            assert listed >= 5 and len(room) == 4, (width, listed, room)
            assert min(room[:2]) >= 0 and min(room[2:]) >= 40, (width, "reasons, and two lines of both answers", room)
            lines = browser.execute_script(ONE_LINE)
            assert len(lines) == 2 * changed and max(lines) <= 0, (width, "plot and figures in a line each", lines)
            assert browser.execute_script(CUT_OFF) == []
            chosen = browser.find_element("css selector", "[data-list] [aria-current] .badge")
            assert "regressed" in (chosen.get_attribute("class") or "")
            folded = browser.find_elements("css selector", ".folds summary")[0]
            unchanged = "No significant difference: structure +0.000, tone +0.000" if changed == 6 else "Also"
            assert folded.text.startswith(unchanged) and folded.rect["height"] < 24
            folded.click()
            assert len(browser.execute_script(ONE_LINE)) > len(lines), "what is folded opens"
            assert browser.execute_script(CUT_OFF) == [] and violations(browser) == [] and complaints(browser) == []


def test_lists_are_lines_and_a_box_opens_a_run(browser: Chrome, url: str) -> None:
    look(browser, "light", 1400, 900)
    for name in ("experiments", "datasets", "decisions", "pairwise"):
        browser.get(f"{url}/{name}")
        heights = browser.execute_script(HEIGHTS)
        assert heights and max(heights) < 27, (name, heights)
    browser.get(f"{url}/experiments")
    folded = len(browser.execute_script(HEIGHTS))
    browser.find_element("css selector", "input.opens").click()
    assert len(browser.execute_script(HEIGHTS)) >= folded + 2
    browser.get(f"{url}/experiments?sort=name")
    assert not browser.find_elements("css selector", "input.opens"), "in another order each is by itself"


def test_examples_are_read_by_keyboard_in_the_first_screen_and_kept_in_the_address(
    browser: Chrome, everything: Path, url: str
) -> None:
    look(browser, "light", 1440, 900)
    browser.get(url + addresses(everything)["two experiments"])
    pane = browser.find_element("css selector", "[data-pane]")
    reason = browser.find_element("css selector", "[data-pane] .reason")
    assert pane.rect["y"] < 900 and reason.rect["y"] + reason.rect["height"] < 900, "why, without a scroll"
    body, first = browser.find_element("tag name", "body"), listed(browser)
    for key, place in (("j", 1), ("j", 2), ("k", 1)):
        body.send_keys(key)
        identity = first[place].split()[0]
        until(lambda wanted=f"example={identity}": wanted in browser.current_url, 10)  # type: ignore[misc]
        assert identity in pane.text.split()
    browser.get(browser.current_url)
    chosen = browser.find_element("css selector", "[data-list] [aria-current]")
    assert chosen.text.startswith(first[1].split()[0]), "the address has it"
    browser.get(url + "/experiments")
    opened = browser.find_element("css selector", "table[data-rows] tr[tabindex] a").get_attribute("href")
    browser.find_element("css selector", "table[data-rows] tr[tabindex]").send_keys(Keys.ENTER)
    until(lambda: browser.current_url == opened, 10)


def test_a_label_given_by_keyboard_is_stored_and_counts_for_the_judge(
    browser: Chrome, everything: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(everything, store)
    pages = addresses(store)
    with dashboard(store) as url:
        browser.get(f"{url}/judges/contains")
        before = browser.find_element("tag name", "main").text
        browser.get(url + pages["item to label"])
        for number, key in enumerate("yny", start=1):
            item = browser.find_element("css selector", "form[data-item]").get_attribute("data-item")
            browser.find_element("tag name", "body").send_keys(key)
            until(lambda item=item: is_another(browser, item), 10)
            assert stored_labels(store) == [1.0, 0.0, 1.0][:number]
        browser.get(f"{url}/judges/contains")
        after = browser.find_element("tag name", "main").text
        assert "ann" not in before
        assert before != after
        assert complaints(browser) == []


def test_a_file_and_an_edit_become_versions_and_a_key_adds_a_reviewed_example(
    browser: Chrome, everything: Path, tmp_path: Path
) -> None:
    store, file = tmp_path / "store", tmp_path / "more.csv"
    shutil.copytree(everything, store)

    def fill(**fields: str) -> None:
        for name, text in fields.items():
            field = browser.find_element("css selector", f"form[data-post] [name='{name}']")
            field.clear() if name != "file" else None
            field.send_keys(text)
        browser.find_element("css selector", "form[data-post] button").click()

    def status() -> str:
        return browser.find_element("css selector", "form[data-post] [role=status]").text

    with dashboard(store) as url:
        browser.get(f"{url}/datasets")
        file.write_text("id,inputs\nb,\n")
        fill(file=str(file), dataset="faq", by="ann")
        until(lambda: status().startswith("more.csv:2: no inputs"), 10)
        file.write_text("id,inputs\nb,How?\n")
        browser.refresh()
        fill(file=str(file), dataset="faq", by="ann")
        until(lambda: browser.current_url == f"{url}/datasets/faq", 10)
        browser.find_element("link text", "b").click()
        fill(**{"inputs.input": "Why?", "by": "ben"})
        until(lambda: "Why?" in browser.page_source, 10)  # what is typed is not in it until it is saved
        browser.get(f"{url}/datasets/faq")
        assert "an edit by ben" in browser.find_element("tag name", "main").text
        browser.get(url + addresses(store)["item to label"] + "&dataset=hard")
        browser.find_element("tag name", "body").send_keys("d")
        until(lambda: status() == "hard: 1 examples; 1 added, 0 unchanged", 10)
        browser.get_log("browser")  # the refused file
        browser.get(f"{url}/review")
        browser.find_element("link text", "Review faq").click()
        browser.find_element("tag name", "body").send_keys("e")
        browser.switch_to.active_element.send_keys("No: ", Keys.ESCAPE)
        browser.find_element("tag name", "body").send_keys("a")
        until(lambda: "Nothing is left to review" in browser.page_source, 10)
        file.write_text('id,inputs,metadata\ny,Wrong?,"{""draft"": true}"\n')
        done = CliRunner().invoke(
            cli, ["dataset", "add", f"{file}", "--name", "faq"], env={"EVALFLOWS_STORE": f"{store}"}
        )
        assert done.exit_code == 0, done.output
        browser.refresh()
        browser.find_element("tag name", "body").send_keys("r")
        until(lambda: "0 drafts left among 3 examples" in browser.page_source, 10)
        browser.get(f"{url}/dataset-example?dataset=faq&id=z")
        shown = browser.find_element("tag name", "main").text
        assert "No: Is it a draft?" in shown and "accepted_by" in shown and complaints(browser) == []


def is_another(browser: Chrome, item: str | None) -> bool:
    """Whether the page shows another item to label."""

    def shown() -> list[str | None]:  # found anew each time: the page may be replaced in between
        return [form.get_attribute("data-item") for form in browser.find_elements("css selector", "form[data-item]")]

    return steady(shown) not in ([], [item])


def stored_labels(store: Path) -> list[float]:
    with connect(store) as catalog:
        rows = catalog.sql("select value from current_labels where labeller = 'ann' order by recorded_at").fetchall()
    return [value for (value,) in rows]


ACTS = """
return [...document.querySelectorAll('*')].flatMap((element) => [...element.attributes].filter(
    (one) => one.name.startsWith('on') || one.name === 'style' || /^\\s*javascript:/i.test(one.value)
        || /rebound\\.test/.test(['href', 'src', 'action'].includes(one.name) ? one.value : ''),
).map((one) => `${element.tagName} ${one.name}=${one.value}`)).concat(
    [...document.querySelectorAll('script:not([src])')].map((one) => `SCRIPT ${one.textContent}`))
"""
"""The attributes and scripts of a page that could act."""

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def test_texts_that_attack_are_harmless_on_every_page(
    browser: Chrome, without_prefect: None, screenshots: Path
) -> None:
    run(spec())
    store = Path(Layout.at().root)
    problems = []
    with dashboard(store) as url:
        for page, address in addresses(store).items():
            look(browser, "light", 1400)
            browser.get(url + address)
            problems += [f"{page}: {one}" for one in (*complaints(browser), *acting(browser))]
            for width in (1400, 400):
                look(browser, "light", width)
                if is_wider(browser):
                    problems.append(f"{page}: wider than {width}")
                picture(browser, screenshots / f"hostile-{page}-{width}.png".replace(" ", "-"))
    assert not problems, "\n".join(problems)


def acting(browser: Chrome) -> list[str]:
    """Return what of a page's texts acts, or could."""
    found = [str(one)[:200] for one in browser.execute_script(ACTS)]
    try:
        found.append(f"a dialog: {browser.switch_to.alert.text}")
        browser.switch_to.alert.dismiss()
    except NoAlertPresentException:
        pass
    if browser.title == "owned":
        found.append("the title was changed")
    unseen = UNSEEN.search(str(browser.execute_script("return document.documentElement.textContent")))
    return [*found, f"unseen character {unseen[0]!r}"] if unseen else found


def test_what_acts_would_be_noticed(browser: Chrome, tmp_path: Path) -> None:
    """The test above would notice each of the attacks on a page that does not escape them."""
    page = tmp_path / "page.html"
    page.write_text("<title>a</title><p>\u202e<img src=x onerror=\"document.title='owned'\"><script>1</script>")
    browser.get(page.as_uri())
    found = acting(browser)
    assert [one.split(" ")[0] for one in found] == ["IMG", "SCRIPT", "the", "unseen"]


def test_what_got_worse_comes_first_and_a_failure_mode_is_opened_by_keyboard(browser: Chrome, url: str) -> None:
    look(browser, "light", 1400, 900)
    for address, shown in (("modes/rude", ".modes"), ("modes", ".grouped"), ("home", ".falls")):
        browser.get(f"{url}/{address}")
        assert browser.find_element("css selector", f".scroll > {shown}").is_displayed()
    tables = browser.find_elements("css selector", "table")
    assert "falls" in tables[0].get_attribute("class") and tables[1].rect["y"] < 500, "what got worse comes first"
    browser.get(f"{url}/modes")
    browser.find_element("tag name", "body").send_keys("j", Keys.ENTER)
    until(lambda: "/modes/rude" in browser.current_url, 10)
