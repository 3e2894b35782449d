"""The Compare page shows figures, changes and answers of experiments, and filters, sorts and pages the examples."""

import re
from html import unescape
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from answered import answered
from page_text import Seen, seen

from evalflows.dashboard.compare import compare_page, compare_slices_page
from evalflows.dashboard.links import Links, NoLinks
from evalflows.dashboard.rendering import Query, Site
from evalflows.specs.errors import InputError
from evalflows.store.store import Store

EXAMPLES = [f"q{place}" for place in range(6)]
ROWS = [
    {"id": one, "inputs": {"question": f"{one}?"}, "outputs": {"answer": f"right {one}"}, "split": split}
    for one, split in zip(EXAMPLES, ["easy", "hard"] * 3, strict=True)
]
OLD = dict(zip(EXAMPLES, [1.0, 1.0, 0.0, 0.5, 0.0, 1.0], strict=True))
NEW = dict(zip(EXAMPLES, [0.0, 0.8, 1.0, 0.5, None, 1.0], strict=True))
NEWER = dict(zip(EXAMPLES, [1.0, 1.0, 0.0, 0.5, 0.0, 1.0], strict=True))
HOSTILE = dict.fromkeys(EXAMPLES, "fine") | {
    "q0": "\n".join(
        (
            "<script>alert(1)</script><img src=x onerror=alert(1)>",
            "[click](javascript:alert(1)) **bold** `code`",
            "\x1b[31mred\x1b[0m \x07",
            '=HYPERLINK("http://x")',
            "abc \u202egnirts\u202c \u2066x\u2069",
        )
    ),
    "q5": "y" * 1_000_000,
}
BASE, CANDIDATE, THIRD = "exp-00-old", "exp-01-new", "exp-02-newer"


pytestmark = pytest.mark.usefixtures("filled")


def fill() -> None:
    """A baseline, a candidate in which q0 and q1 got worse, q2 better, and q4 is missing, a third as the first."""
    for place, (name, scores) in enumerate((("old", OLD), ("new", NEW), ("newer", NEWER))):
        answers = {one: f"{name} says {one} is fine" for one in EXAMPLES}
        answered(name, answers, {"right": scores, "tone": dict.fromkeys(EXAMPLES, "kind")}, place=place, rows=ROWS)
    answered("elsewhere", {"a": "b"}, {}, place=3, dataset_name="others")
    answered("running", {"q0": "x"}, {"right": {"q0": 0.0}}, place=4, rows=ROWS, state="running")
    both = {"right": OLD, "short": dict.fromkeys(EXAMPLES, 1.0)}
    worse = {"right": NEW, "short": dict.fromkeys(EXAMPLES, 1.0) | {"q5": 0.0}}
    others = {"before": both, "after": worse, "first": {"depth": OLD}, "second": {"width": OLD}}
    for place, (name, given) in enumerate(others.items(), 5):
        answered(name, {one: f"{name} {one}" for one in EXAMPLES}, given, place=place, rows=ROWS)
    answered("hostile", HOSTILE, {"right": dict.fromkeys(EXAMPLES, 0.0)}, place=9, rows=ROWS)


def page(site: Site | None = None, **values: str | list[str]) -> Seen:
    given = {name: [value] if isinstance(value, str) else value for name, value in values.items()}
    body = compare_page(site or Site(store=Store(), links=Links()), Query(given)).body
    return seen(body)


def compared(**values: str | list[str]) -> Seen:
    return page(**{"baseline": BASE, "candidate": [CANDIDATE, THIRD], "metric": "right", **values})


def examples(shown: Seen) -> list[str]:
    """The ids of the listed examples, in order."""
    asked = [parse_qs(urlsplit(address).query) for _, address in shown.links if "#examples" in address]
    return [one["example"][0] for one in asked if "example" in one]


def test_without_parameters_one_chooses_from_the_experiments_by_dataset() -> None:
    shown = page()
    listed = [row[2] for row in shown.rows if len(row) == 7 and row[2] != "Experiment"]
    assert {"old", "new", "newer"} < {*listed[:-1]} and listed[-1] == "elsewhere", "dataset by dataset"
    assert {one["value"] for one in shown.fields if one.get("name") == "baseline"} >= {BASE, CANDIDATE, THIRD}
    assert "others" in shown.text and "questions" in shown.text
    chosen = page(candidate="new")
    assert "elsewhere" not in chosen.text, "those on its dataset are offered"
    checked = [one for one in chosen.fields if "checked" in one]
    assert [(one["name"], one["value"]) for one in checked] == [("candidate", CANDIDATE)]


@pytest.mark.slow
def test_worst_comes_first_and_what_has_no_difference_last() -> None:
    assert examples(compared()) == ["q0", "q1", "q2", "q4", "q3", "q5"], "in the third nothing changed"
    assert examples(compared(of=CANDIDATE)) == ["q0", "q1", "q3", "q5", "q2", "q4"]
    assert examples(compared(of=CANDIDATE, sort="best"))[0] == "q2"
    by_name = page(baseline="old", candidate="exp-01", metric="right", sort="example")
    assert examples(by_name) == EXAMPLES, "references may be names and prefixes"


@pytest.mark.slow
def test_changes_splits_and_texts_filter_the_examples() -> None:
    for change, found in {"regressed": ["q0", "q1"], "improved": ["q2"], "missing": ["q4"], "flipped": []}.items():
        shown = compared(change=change)
        assert examples(shown) == found
        assert f"{len(found)} of 6 examples" in shown.text
    assert sorted(examples(compared(split="hard"))) == ["q1", "q3", "q5"]
    assert examples(compared(q="NEW says Q3")) == ["q3"]
    assert examples(compared(q="right q5")) == ["q5"]


@pytest.mark.slow
def test_worse_in_any_metric_looks_beyond_the_chosen_one() -> None:
    shown = page(baseline="before", candidate="after", metric="short", change="worse_in_any", sort="position")
    assert examples(shown) == ["q0", "q1", "q5"]
    assert examples(compared(change="worse_in_any", of=THIRD)) == []
    assert examples(compared(change="worse_in_any", q="q1?")) == ["q1"]


def test_the_list_says_how_examples_changed_and_the_pane_shows_the_first_or_the_one_asked_for() -> None:
    shown = compared()
    listed = {text.split()[0]: text for text, address in shown.links if "example=" in address}
    assert listed["q0"] == "q0 q0? 1.000 0.000 1.000", "in the baseline and both candidates"
    assert listed["q4"].startswith("q4 q4? 0.000 -")
    for said in ("q0?", "old says q0", "new says q0", "right says 0.0 of q0", "▼ regressed right 1.000 → 0.000"):
        assert said in shown.text, said
    words = shown.text
    assert words.index("right says 0.0 of q0") < words.index("new says q0"), "the reason stands above the answer"
    missing = compared(example="q4")
    assert "no verdict on q4" in missing.text and "old says q0" not in missing.text
    with pytest.raises(InputError, match="example 'nope'"):
        compared(example="nope")


def test_counts_are_those_of_the_examples_and_lead_to_them() -> None:
    shown = compared()
    counts = {text: address for text, address in shown.links if text.endswith(("regressed", "improved"))}
    assert set(counts) == {"▲ 1 improved", "▼ 2 regressed"}
    asked = parse_qs(urlsplit(counts["▼ 2 regressed"]).query)
    assert asked["change"] == ["regressed"] and asked["of"] == [CANDIDATE]
    assert examples(compared(change="regressed", of=CANDIDATE)) == ["q0", "q1"]
    right = next(row for row in shown.rows if row and row[:2] == ["right 0 to 1", "new"])
    assert right[4] == "2 worse · 1 better · 1 missing"
    assert right[2].endswith("1 missing"), "of the answers"


def test_words_that_differ_from_the_baseline_are_marked() -> None:
    site = Site(store=Store(), links=Links())
    asked = {"baseline": ["old"], "candidate": ["new"], "example": ["q0"]}
    in_words = compare_page(site, Query({**asked, "words": ["1"]})).body
    assert "<del>old</del> says q0 is fine" in in_words and "<ins>new</ins> says q0 is fine" in in_words
    assert "<del>" not in compare_page(site, Query(asked)).body
    alone = Site(store=Store(), links=NoLinks())
    assert "<del>old</del>" in compare_page(alone, Query({**asked, "words": ["1"]})).body


def test_slices_are_searched_when_they_are_asked_for() -> None:
    html = str(
        compare_page(Site(store=Store(), links=Links()), Query({"baseline": ["old"], "candidate": ["new"]})).body
    )
    (address,) = re.findall(r'data-load="(/compare/slices[^"]*)"', html)
    asked = Query.of(parse_qsl(urlsplit(unescape(address)).query))
    found = seen(compare_slices_page(Site(store=Store(), links=Links()), asked).body)
    assert "no slice" in found.text.lower(), found.text


def test_candidates_are_removed_and_swapped_by_links() -> None:
    shown = compared(change="regressed", of=CANDIDATE)
    links = [(text, parse_qs(urlsplit(address).query)) for text, address in shown.links]
    without = next(asked for text, asked in links if text == "remove")
    assert without["candidate"] == [THIRD]
    swapped = next(asked for text, asked in links if text == "swap")
    assert (swapped["baseline"], swapped["candidate"]) == ([CANDIDATE], [BASE, THIRD])
    assert not {"change", "of"} & swapped.keys(), "they are of the candidate that became the baseline"


@pytest.mark.slow
def test_a_candidate_that_becomes_the_baseline_gives_its_place_to_the_former_one() -> None:
    shown = page(baseline=CANDIDATE, was=BASE, candidate=[CANDIDATE, THIRD])
    assert "regressed" in shown.text
    chosen = [one["value"] for one in shown.fields if one.get("name") == "candidate"]
    assert chosen[:2] == [BASE, THIRD]


def test_wrong_parameters_are_named() -> None:
    for name, value, message in (
        ("metric", "nope", "metric: got 'nope', wanted one of right, tone"),
        ("of", "nope", "of: got 'nope', wanted one of the candidates exp-01-new, exp-02-newer"),
        ("page", "9", "page: got 9, wanted at most 1"),
        ("candidate", "nope", "experiment 'nope': not in"),
    ):
        with pytest.raises(InputError, match=message):
            compared(**{name: value})
    more = ["new", "newer", "running", "before", "after", "first", "second", "hostile", "elsewhere"]
    with pytest.raises(InputError, match="candidate: got 9, wanted at most 8"):
        page(baseline="old", candidate=more)


def test_in_a_report_of_one_file_there_are_no_forms_and_no_links() -> None:
    shown = page(Site(store=Store(), links=NoLinks()), baseline=BASE, candidate=[CANDIDATE], metric="right")
    assert not {"form", "a", "select"} & {*shown.tags}
    row = next(row for row in shown.rows if row and row[0].startswith("q0"))
    assert "▼ 2 regressed" in shown.text and "right 1.000" in row[2] and "regressed -1.000" in row[3]
    missing = next(row for row in shown.rows if row and row[0].startswith("q4"))
    assert "no verdict on q4" in missing[3] and "missing" in missing[3]


@pytest.mark.parametrize("words", ["", "1"])
def test_hostile_answers_are_harmless_text(words: str) -> None:
    for links, example in ((NoLinks(), "q0"), (Links(), "q0"), (Links(), "q5")):
        asked = {"baseline": [BASE], "candidate": ["hostile"], "words": [words], "example": [example]}
        body = compare_page(Site(store=Store(), links=links), Query(asked)).body
        shown = seen(body)
        assert not {"script", "img"} & {*shown.tags}
        assert not [address for _, address in shown.links if not address.startswith("/")]
        assert not {"\x1b", "\x07", "\u202e", "\u2066"} & {*unescape(body)}
        assert len(body) < 250_000, "a long answer is cut"
    assert "more characters" in shown.text or words
