"""Messages name what is close to a wrong name, or the first names."""

from evalflows.specs.errors import names_to_choose

NAMES = ["support-brief", "support-plain", "faq"]


def test_names_close_to_a_wrong_one_are_named_or_the_first() -> None:
    assert names_to_choose("suport-plain", NAMES) == "support-plain or support-brief"
    assert names_to_choose("fqa", NAMES) == "faq"
    assert names_to_choose("demoo", NAMES, ["demo"]) == "demo"
    assert names_to_choose("else", NAMES, ["demo"]) == "one of: support-brief, support-plain, faq"
    assert names_to_choose("x", (str(n) for n in range(12))) == "one of: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"
    assert names_to_choose("x", ["a", "b", "c"], most=2) == "one of: a, b, …"
    assert names_to_choose("x", []) == "one of: none yet"
