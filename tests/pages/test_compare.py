"""The Compare page shows figures, changes and answers of experiments, and filters, sorts and pages the examples."""

from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from answered import answered
from page_text import Seen, seen

from evalflows.pages.compare import compare_page
from evalflows.pages.links import Links, NoLinks
from evalflows.pages.page import Site
from evalflows.pages.query import Query
from evalflows.specs.errors import InputError
from evalflows.store.leases.lease import leased
from evalflows.store.parquet import Store

EXAMPLES = [f"q{place}" for place in range(6)]
ROWS = [
    {"id": one, "inputs": {"question": f"{one}?"}, "outputs": {"answer": f"right {one}"}, "split": split}
    for one, split in zip(EXAMPLES, ["easy", "hard"] * 3, strict=True)
]
OLD = dict(zip(EXAMPLES, [1.0, 1.0, 0.0, 0.5, 0.0, 1.0], strict=True))
NEW = dict(zip(EXAMPLES, [0.0, 0.8, 1.0, 0.5, None, 1.0], strict=True))
NEWER = dict(zip(EXAMPLES, [1.0, 1.0, 0.0, 0.5, 0.0, 1.0], strict=True))
BASE, CANDIDATE, THIRD = "exp-00-old", "exp-01-new", "exp-02-newer"


@pytest.fixture(autouse=True)
def systems() -> None:
    """A baseline, a candidate in which q0 and q1 got worse, q2 better, and q4 is missing, and a third as the first."""
    for place, (name, scores) in enumerate((("old", OLD), ("new", NEW), ("newer", NEWER))):
        answers = {one: f"{name} says {one} is fine" for one in EXAMPLES}
        answered(name, answers, {"right": scores, "tone": dict.fromkeys(EXAMPLES, "kind")}, place=place, rows=ROWS)


def page(site: Site | None = None, **values: str | list[str]) -> Seen:
    given = {name: [value] if isinstance(value, str) else value for name, value in values.items()}
    body = compare_page(site or Site(store=Store(), links=Links()), Query(given)).body
    return seen(body)


def compared(**values: str | list[str]) -> Seen:
    return page(**{"baseline": BASE, "candidate": [CANDIDATE, THIRD], "metric": "right", **values})


def examples(shown: Seen) -> list[str]:
    """The ids of the rows of examples, in order."""
    return [row[0].split()[0] for row in shown.rows if row and row[0].split()[:1] and row[0].split()[0] in EXAMPLES]


def test_without_parameters_one_chooses_from_the_experiments_by_dataset() -> None:
    answered("elsewhere", {"a": "b"}, {}, place=3, dataset_name="others")
    shown = page()
    listed = [row[2] for row in shown.rows if len(row) == 7 and row[2] != "Experiment"]
    assert sorted(listed[:3]) == ["new", "newer", "old"] and listed[3:] == ["elsewhere"], "dataset by dataset"
    assert {one["value"] for one in shown.fields if one.get("name") == "baseline"} >= {BASE, CANDIDATE, THIRD}
    assert "others" in shown.text and "questions" in shown.text


def test_with_one_side_only_those_on_its_dataset_are_offered() -> None:
    answered("elsewhere", {"a": "b"}, {}, place=3, dataset_name="others")
    shown = page(candidate="new")
    assert "elsewhere" not in shown.text
    chosen = [one for one in shown.fields if "checked" in one]
    assert [(one["name"], one["value"]) for one in chosen] == [("candidate", CANDIDATE)]


@pytest.mark.slow
def test_references_may_be_names_and_prefixes() -> None:
    assert examples(page(baseline="old", candidate="exp-01", metric="right", sort="example")) == EXAMPLES


@pytest.mark.slow
def test_worst_comes_first_and_what_has_no_difference_last() -> None:
    assert examples(compared()) == ["q0", "q1", "q2", "q4", "q3", "q5"], "in the third nothing changed"
    assert examples(compared(of=CANDIDATE)) == ["q0", "q1", "q3", "q5", "q2", "q4"]
    assert examples(compared(of=CANDIDATE, sort="best"))[0] == "q2"
    assert examples(compared(sort="position")) == EXAMPLES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "found"), [("regressed", ["q0", "q1"]), ("improved", ["q2"]), ("missing", ["q4"]), ("flipped", [])]
)
def test_a_change_filters_the_examples(change: str, found: list[str]) -> None:
    shown = compared(change=change)
    assert examples(shown) == found
    assert f"{len(found)} of 6 examples" in shown.text


@pytest.mark.slow
def test_worse_in_any_metric_looks_beyond_the_chosen_one() -> None:
    both = {"right": OLD, "short": dict.fromkeys(EXAMPLES, 1.0)}
    worse = {"right": NEW, "short": dict.fromkeys(EXAMPLES, 1.0) | {"q5": 0.0}}
    ids = [
        answered(name, {one: f"{name} {one}" for one in EXAMPLES}, scores, place=place, rows=ROWS)
        for place, (name, scores) in enumerate((("before", both), ("after", worse)), 5)
    ]
    shown = page(baseline=ids[0], candidate=ids[1], metric="short", change="worse_in_any", sort="position")
    assert examples(shown) == ["q0", "q1", "q5"]
    assert examples(compared(change="worse_in_any", of=THIRD)) == []
    assert examples(compared(change="worse_in_any", q="q1?")) == ["q1"]


def test_systems_without_a_shared_metric_of_an_evaluator_open_on_none() -> None:
    one, other = (
        answered(name, dict.fromkeys(EXAMPLES, "x"), {metric: OLD}, place=place, rows=ROWS)
        for place, (name, metric) in enumerate((("first", "depth"), ("second", "width")), 5)
    )
    shown = page(baseline=one, candidate=other)
    assert "no metric in common" in shown.text
    assert len(examples(shown)) == len(EXAMPLES)


@pytest.mark.slow
def test_split_and_search_filter_the_examples() -> None:
    assert sorted(examples(compared(split="hard"))) == ["q1", "q3", "q5"]
    assert examples(compared(q="NEW says Q3")) == ["q3"]
    assert examples(compared(q="right q5")) == ["q5"]
    assert examples(compared(q="nowhere")) == []


def test_cells_say_in_words_how_an_example_changed() -> None:
    shown = compared()
    row = next(row for row in shown.rows if row and row[0].startswith("q0"))
    classes = shown.classes[shown.rows.index(row)]
    assert "right 1.000" in row[2] and "old says q0" in row[2]
    assert "regressed -1.000" in row[3] and "new says q0" in row[3]
    assert "same" in row[4]
    assert classes[2:] == ["", "regressed", "same"]


def test_a_missing_value_is_shown_with_its_reason() -> None:
    row = next(row for row in compared().rows if row and row[0].startswith("q4"))
    assert "no verdict on q4" in row[3] and "missing" in row[3]


def test_counts_are_those_of_the_examples_and_lead_to_them() -> None:
    shown = compared()
    counts = {text: address for text, address in shown.links if "regressed" in text or "improved" in text}
    assert set(counts) == {"▲ 1 improved", "▼ 2 regressed"}
    asked = parse_qs(urlsplit(counts["▼ 2 regressed"]).query)
    assert asked["change"] == ["regressed"] and asked["of"] == [CANDIDATE]
    assert examples(compared(change="regressed", of=CANDIDATE)) == ["q0", "q1"]
    right = next(row for row in shown.rows if row and row[0] == "new")
    assert right[-3:] == ["1", "2", "1"], "improved, regressed, missing"
    assert right[-5:-3] == ["5", "1"], "scored and missing"


def test_words_that_differ_from_the_baseline_are_marked() -> None:
    site = Site(store=Store(), links=Links())
    body = compare_page(site, Query({"baseline": ["old"], "candidate": ["new"], "words": ["1"]})).body
    assert "<del>old</del><ins>new</ins> says q0 is fine" in body
    assert "<del>" not in compare_page(site, Query({"baseline": ["old"], "candidate": ["new"]})).body


def test_candidates_are_removed_and_swapped_by_links() -> None:
    shown = compared()
    links = [(text, parse_qs(urlsplit(address).query)) for text, address in shown.links]
    without = next(asked for text, asked in links if text == "remove new")
    assert without["candidate"] == [THIRD]
    swapped = next(asked for text, asked in links if text == "swap with the baseline")
    assert (swapped["baseline"], swapped["candidate"]) == ([CANDIDATE], [BASE, THIRD])


def test_a_candidate_that_becomes_the_baseline_gives_its_place_to_the_former_one() -> None:
    shown = page(baseline=CANDIDATE, was=BASE, candidate=[CANDIDATE, THIRD])
    assert "regressed" in shown.text
    chosen = [one["value"] for one in shown.fields if one.get("name") == "candidate"]
    assert chosen[:2] == [BASE, THIRD]


def test_the_first_metric_is_the_one_in_which_most_got_worse() -> None:
    assert examples(page(baseline=BASE, candidate=[CANDIDATE]))[:2] == ["q0", "q1"], "not in tone, where none did"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metric": "nope"}, "metric: got 'nope', wanted one of right, tone"),
        ({"change": "nope"}, "change: got 'nope', wanted one of improved, regressed"),
        ({"of": "nope"}, "of: got 'nope', wanted one of the candidates exp-01-new, exp-02-newer"),
        ({"page": "9"}, "page: got 9, wanted at most 1"),
        ({"sort": "nope"}, "sort: got 'nope', wanted one of worst, best"),
        ({"candidate": "nope"}, "experiment 'nope': not in"),
    ],
)
def test_wrong_parameters_are_named(values: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compared(**values)


def test_more_candidates_than_fit_are_refused() -> None:
    more = [answered(f"more{i}", {"q0": "x"}, {}, place=10 + i) for i in range(9)]
    with pytest.raises(InputError, match="candidate: got 9, wanted at most 8"):
        page(baseline=BASE, candidate=more)


def test_in_a_report_of_one_file_there_are_no_forms_and_no_links() -> None:
    shown = page(Site(store=Store(), links=NoLinks()), baseline=BASE, candidate=[CANDIDATE], metric="right")
    assert not {"form", "a", "select"} & {*shown.tags}
    assert "▼ 2 regressed" in shown.text and examples(shown)[:2] == ["q0", "q1"]


@pytest.mark.slow
def test_a_running_experiment_is_shown_again_soon() -> None:
    running = answered("running", {"q0": "x"}, {"right": {"q0": 0.0}}, place=4, rows=ROWS, state="running")
    site = Site(store=Store(), links=Links())
    with leased(Store(), "group of running", "run", wait=False):
        shown = compare_page(site, Query({"baseline": [BASE], "candidate": [running]}))
        assert shown.refresh_s == 10 and "running" in seen(shown.body).text
    done = compare_page(site, Query({"baseline": [BASE], "candidate": [CANDIDATE]}))
    assert done.refresh_s is None


HOSTILE = {
    "q0": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "q1": "[click](javascript:alert(1)) **bold** `code`",
    "q2": "\x1b[31mred\x1b[0m \x07",
    "q3": '=HYPERLINK("http://x")',
    "q4": "abc \u202egnirts\u202c \u2066x\u2069",
    "q5": "y" * 1_000_000,
}


@pytest.mark.parametrize("words", ["", "1"])
def test_hostile_answers_are_harmless_text(words: str) -> None:
    answered("hostile", HOSTILE, {"right": dict.fromkeys(EXAMPLES, 0.0)}, place=5, rows=ROWS)
    site = Site(store=Store(), links=Links())
    body = compare_page(site, Query({"baseline": [BASE], "candidate": ["hostile"], "words": [words]})).body
    shown = seen(body)
    assert not {"script", "img"} & {*shown.tags}
    assert not [address for _, address in shown.links if not address.startswith("/")]
    assert not {"\x1b", "\x07", "\u202e", "\u2066"} & {*unescape(body)}
    assert len(body) < 200_000, "a long answer is cut"
    assert "more characters" in shown.text or words
