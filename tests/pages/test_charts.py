"""Charts: what is drawn, where, and in words."""

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from evalflows.dashboard.charts import Point, Scale, domain, histogram, share_bar, sparkline, timeline, whisker

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def parsed(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawing)


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if name in element.get("class", "").split()]


def test_a_whisker_puts_value_interval_and_mark_at_their_places() -> None:
    root = parsed(whisker(0.5, 0.25, 0.75, (0.0, 1.0), "0.5", marks=[0.0, None], width=112))
    (dot,) = of_class(root, "dot")
    line, *_ = of_class(root, "interval")
    (mark,) = of_class(root, "mark")
    assert (dot.get("cx"), line.get("x1"), line.get("x2"), mark.get("x1")) == ("56", "31", "81", "6")


def test_parts_of_a_bar_have_the_widths_of_their_shares() -> None:
    root = parsed(share_bar([("won", 3, "better"), ("tied", 0, "calm"), ("lost", 1, "worse")], "shares", width=100))
    assert [(part.get("x"), part.get("width")) for part in of_class(root, "part")] == [("0", "75"), ("75", "25")]
    assert not of_class(parsed(share_bar([("won", 0, "better")], "none")), "part")


def test_a_histogram_has_a_bar_for_each_count() -> None:
    root = parsed(histogram([("no", 5), ("yes", 10)], "answers", height=128))
    assert [bar.get("height") for bar in of_class(root, "bar")] == ["50", "100"]
    assert not of_class(parsed(histogram([], "nothing")), "bar")


def points(*values: float | None, alike: str = "") -> list[Point]:
    return [
        Point(at=DAY + timedelta(days=place), value=value, title=f"{value}", alike=(*alike[place : place + 1],))
        for place, value in enumerate(values)
    ]


def test_lines_connect_what_is_comparable_and_a_missing_value_interrupts_them() -> None:
    def runs(drawn: str) -> list[int]:
        return [len((line.get("points") or "").split()) for line in of_class(parsed(drawn), "line")]

    assert runs(timeline(points(1, 2, 3, 4), "score", "all")) == [4]
    assert runs(timeline(points(1, 2, None, 3, 4), "score", "a gap")) == [2, 2]
    drawn = timeline(points(1, 2, 3, 4, alike="aabb"), "score", "a break")
    assert runs(drawn) == [2, 2]
    assert len(of_class(parsed(drawn), "break")) == 1
    in_turn = timeline(points(1, 9, 2, 8, 3, alike="ababa"), "score", "two datasets in turn")
    assert runs(in_turn) == [3, 2] and len(of_class(parsed(in_turn), "break")) == 1
    assert runs(sparkline([1, None, 2, 3], "small")) == [2]


def test_labels_do_not_overlap_and_some_have_room_on_a_wide_chart_alone() -> None:
    marks = [(DAY + timedelta(days=place), f"v{place}" * 3) for place in range(30)]
    root = parsed(timeline(points(*range(30)), "score", "versions", marks=marks))
    names = {(one.text, one.get("class")) for one in of_class(root, "tick") if "v" in (one.text or "")}
    assert ("v0v0v0", "tick") in names and 2 <= len([one for one in names if one[1] == "tick"]) < 8
    assert 8 <= len(names) < 20 and ("2026-01-30", "tick") in {(one.text, one.get("class")) for one in root.iter()}
    hours = parsed(
        timeline([Point(at=DAY + timedelta(hours=one), value=1, title="") for one in (1, 5)], "score", "day")
    )
    assert [one.text for one in of_class(hours, "tick")][-2:] == ["2026-01-01 01:00", "05:00"]


@pytest.mark.parametrize(
    ("values", "wanted"), [([], (0, 1)), ([None], (0, 1)), ([0, 10], (-0.5, 10.5)), ([0.0], (-0.5, 0.5))]
)
def test_the_domain_holds_every_value(values: list[float | None], wanted: tuple[float, float]) -> None:
    assert domain(values) == pytest.approx(wanted)


def test_ticks_are_round_and_inside() -> None:
    assert Scale(0, 1, 0, 100).ticks() == pytest.approx([0, 0.5, 1])
    assert Scale(0.12, 0.93, 0, 100).ticks() == pytest.approx([0.5])
    assert Scale(3, 3, 0, 100).ticks() == [3]


def test_points_with_links_are_named_and_can_be_reached() -> None:
    point = Point(at=DAY, value=1.0, title='1 "\x1b"', href="/experiments/a%22b")
    root = parsed(timeline([point], "score", "linked"))
    (link,) = [one for one in root.iter() if one.tag == "a"]
    assert (link.get("href"), link.get("aria-label")) == ("/experiments/a%22b", '1 "\\x1b"')
    assert (root.get("role"), parsed(timeline(points(1), "score", "plain")).get("role")) == ("group", "img")
