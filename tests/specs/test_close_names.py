"""Messages name what is close to a wrong name, or the first names."""

from evalflows.specs.close_names import names_to_choose

NAMES = ["support-brief", "support-plain", "faq"]


def test_close_names_are_named_best_first() -> None:
    assert names_to_choose("suport-plain", NAMES) == "support-plain or support-brief"
    assert names_to_choose("fqa", NAMES) == "faq"


def test_a_spec_s_name_is_named_only_if_it_is_close() -> None:
    assert names_to_choose("demoo", NAMES, ["demo"]) == "demo"
    assert names_to_choose("else", NAMES, ["demo"]) == "one of: support-brief, support-plain, faq"


def test_of_many_names_the_first_are_named() -> None:
    assert names_to_choose("x", (str(n) for n in range(12))) == "one of: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"
    assert names_to_choose("x", ["a", "b", "c"], most=2) == "one of: a, b, …"
    assert names_to_choose("x", []) == "one of: none yet"
