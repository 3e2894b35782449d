"""Rules on texts: exact_match, contains, regex, length_between, concision and edit_similarity."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.evaluators import concision, contains, edit_similarity, exact_match, final_answer, length_between, regex
from evalflows.evaluators.binding import bind, read_returned
from evalflows.evaluators.paths import answer_text, reference_value
from evalflows.evaluators.score import Judgement
from evalflows.specs.errors import CallError

TEXTS = st.text(alphabet="abé 🙂", max_size=12)
PARIS = {"city": "Paris", "country": "France"}
ANSWERS = {"answer": "Rome", "reasoning": "not Paris"}


def judged(rule: Any, answer: Any, wanted: Any = None, **settings: Any) -> Any:
    """A side that is no mapping is its only field, under different names."""
    outputs = answer if isinstance(answer, dict) else {"output": answer}
    reference = wanted if wanted is None or isinstance(wanted, dict) else {"answer": wanted}
    return rule(*((outputs,) if rule in (length_between, regex) else (outputs, reference)), **settings)


CASES: list[tuple[Any, Any, Any, dict[str, Any], Any]] = [
    (exact_match, "Paris ", "Paris", {"strip": False}, False),
    (exact_match, "Paris ", "Paris ", {"strip": False}, True),
    (exact_match, "paris", "Paris", {}, False),
    (exact_match, "paris", "Paris", {"ignore_case": True}, True),
    *((exact_match, a, b, {}, a == b) for a, b in ((42, 42), (42, 42.0), (42, 43), (42, "42"), ("42", 42))),
    *((exact_match, a, ["a", "b"], {}, a == ["a", "b"]) for a in (["a", "b"], ["b", "a"], ["a"], "a, b")),
    (exact_match, '["a", "b"]', ["a", "b"], {}, True),  # JSON in a text is what it says
    (exact_match, '{"b": "x ", "a": 1}', {"a": 1, "b": "x"}, {}, True),
    (exact_match, {"a": 1}, '{"a": 1}', {}, True),
    (exact_match, {"a": 1}, '{"a": 2}', {}, False),
    *((exact_match, a, b, {"any_type": True}, True) for a, b in (("4", 4), (4.0, "4"), ("true", True), ('[1]', [1]))),
    *((exact_match, a, b, {"any_type": True}, False) for a, b in (("4", 5), ("1", True), ("four", 4), ("Infinity", 4))),
    *((exact_match, a, "Zoe\u0301 is\nhere", {}, True) for a in ("Zo\u00e9 is\r\nhere", "Zo\u00e9\u00a0is\rhere")),
    (exact_match, "Zo\u00e9", "Zoe\u0301", {"normalize": False}, False),
    (contains, "10\u202f000 km", "10 000", {}, True),
    (contains, "10\u202f000 km", "10 000", {"normalize": False}, False),
    (contains, None, "null", {}, False),
    (exact_match, ["PARIS ", "Lyon"], ["paris", "lyon"], {"ignore_case": True}, True),
    (exact_match, ["PARIS ", "Nice"], ["paris", "lyon"], {"ignore_case": True}, False),
    (exact_match, {"city": "PARIS ", "country": "FRANCE"}, PARIS, {"ignore_case": True}, True),
    (exact_match, {"country": "France", "city": "Paris"}, PARIS, {}, True),
    (exact_match, {"city": "Paris", "country": "Spain"}, PARIS, {}, False),
    (exact_match, {"city": "Paris"}, PARIS, {}, False),
    (exact_match, {"city": "Paris", "tokens": 12}, PARIS, {"key": "city"}, True),
    (exact_match, {"city": "Rome", "tokens": 12}, PARIS, {"key": "city"}, False),
    (contains, "Paris", "Paris, France", {}, False),
    (contains, "The answer is 42.", 42, {}, True),
    (contains, "The answer is 41.", 42, {}, False),
    (contains, "It is 0.", 0, {}, True),
    (contains, "It is ten.", 0, {}, False),
    (contains, "Paris and Lyon", ["Lyon", "Paris"], {}, True),
    (contains, "Paris and Nice", ["Lyon", "Paris"], {}, False),
    (contains, "red, green", None, {"all_of": ["RED", "green"]}, True),
    (contains, "red, green", None, {"all_of": ["red", "blue"]}, False),
    (contains, "red, green", None, {"any_of": ["blue", "green"]}, True),
    (contains, "red, green", None, {"any_of": ["blue", "black"]}, False),
    (contains, "red, green", None, {"any_of": ["green"], "all_of": ["blue"]}, False),
    (contains, "red, green", None, {"any_of": ["blue"], "all_of": ["red"]}, False),
    (contains, "Rome", "Paris", {"any_of": ["Rome"]}, True),  # the setting comes before the reference
    (contains, "Paris", "Paris", {"all_of": ["Rome"]}, False),
    (contains, "is it Rap?", None, {"any_of": "Paris"}, False),  # a text, not its letters
    (contains, "is it Rap?", None, {"all_of": "Paris"}, False),
    *((contains, a, b, {}, True) for a, b in (("HAUPTSTRASSE 1", "straße"), ("ΣΊΣΥΦΟΣ!", "σίσυφος"), ("ﬁne", "FINE"))),
    (contains, "HAUPTSTRASSE 1", "straße", {"ignore_case": False}, False),
    (contains, ["Paris", "Lyon"], "lyon", {}, True),  # what is no text is searched as JSON
    (contains, {"city": "Paris", "area": 105}, {"area": 105, "city": "Paris"}, {}, True),
    (contains, {"city": "Paris", "area": 105}, {"area": 106, "city": "Paris"}, {}, False),
    (contains, ANSWERS, {"answer": "Paris"}, {}, True),
    (contains, ANSWERS, {"answer": "Paris"}, {"key": "answer"}, False),
    (contains, ANSWERS, {"answer": "Paris", "reasoning": "Paris"}, {"key": "reasoning"}, True),
    *((contains, "Paris", {"answer": nothing}, {}, None) for nothing in ("", None, [], [""])),
    (contains, "Paris", None, {}, None),
    (regex, "Order A-123 was sent.", None, {"pattern": r"[A-Z]-\d{3}"}, True),
    (regex, "Order A-12 was sent.", None, {"pattern": r"[A-Z]-\d{3}"}, False),
    (regex, "A-123", None, {"pattern": r"[A-Z]-\d{3}", "full": True}, True),
    *((regex, a, None, {"pattern": r"[A-Z]-\d{3}", "full": True}, False) for a in ("A-123.", " A-123", "A-123\n")),
    (regex, "PARIS", None, {"pattern": "paris"}, False),
    (regex, "PARIS", None, {"pattern": "paris", "ignore_case": True}, True),
    (regex, "PARIS", None, {"pattern": "paris"}, False),  # what is kept of the last pattern does not matter
    (regex, ANSWERS, None, {"pattern": "Paris", "key": "reasoning"}, True),
    (regex, ANSWERS, None, {"pattern": "Paris", "key": "answer"}, False),
    (regex, {"output": {"city": "Paris"}}, None, {"pattern": r'"city": "P'}, True),
    *((regex, None, None, {"pattern": pattern}, False) for pattern in ("null", "None", ".")),
    (length_between, "one two\nthree", None, {"least": 3, "most": 3, "unit": "words"}, True),
    (length_between, "one two", None, {"least": 3, "unit": "words"}, False),
    (length_between, "a b c d", None, {"most": 3, "unit": "words"}, False),
    (length_between, "one    two", None, {"most": 2, "unit": "words"}, True),
    (length_between, "a    b", None, {"most": 3}, False),
    (length_between, " " * 50, None, {"least": 1}, False),
    (length_between, None, None, {"least": 1}, False),
    (length_between, None, None, {"most": 1}, True),
    (length_between, ANSWERS, None, {"most": 4, "key": "answer"}, True),
    (length_between, ANSWERS, None, {"most": 4, "key": "reasoning"}, False),
    *((concision, "a" * length, "b" * 10, {}, length <= 20) for length in (0, 1, 20, 21, 1000)),
    *((concision, "a" * length, "b" * 10, {"at_most": 1.5}, length <= 15) for length in (15, 16)),
    (concision, "a" * 6, "b" * 10, {"at_most": 0.5}, False),
    (concision, "  Paris" + "\n" * 20, "Paris", {}, True),
    (concision, "Paris, France", f"Paris{' ' * 20}", {}, False),
    *((concision, "Paris", {"answer": nothing}, {}, None) for nothing in (None, "", "  ")),
    (edit_similarity, "PARIS", "paris", {}, 0.0),
    (edit_similarity, "STRASSE", "straße", {"ignore_case": True}, 1.0),
    (edit_similarity, " Paris\n", "Paris ", {}, 1.0),
    (edit_similarity, " abcd", "abcd", {"strip": False}, 0.8),
    (edit_similarity, None, "null", {}, 0.0),
    (edit_similarity, None, "", {}, 1.0),
    (edit_similarity, {"b": 1, "a": 2}, {"a": 2, "b": 1}, {}, 1.0),
    (edit_similarity, [1, 2], [1, 3], {}, 5 / 6),
    (edit_similarity, ANSWERS, {"wanted": "Rome"}, {"key": "answer"}, 1.0),
    (edit_similarity, {"answer": "Rome", "note": "xyz"}, {"wanted": "Rome"}, {"key": "note"}, 0.0),
    (edit_similarity, "a" * 50_000, "a" * 49_999 + "b", {}, 1 - 1 / 50_000),
    *((rule, "Paris", None, {}, None) for rule in (exact_match, concision, edit_similarity)),
    *((rule, "Paris", {}, {}, None) for rule in (concision, edit_similarity)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "answer", "wanted", "settings", "value"), CASES, ids=lambda one: getattr(one, "__name__", None)
)
def test_a_rule_by_example(rule: Any, answer: Any, wanted: Any, settings: dict[str, Any], value: Any) -> None:
    assert judged(rule, answer, wanted, **settings) == (pytest.approx(value) if type(value) is float else value)


def levenshtein(one: str, other: str) -> int:
    """The textbook's, row by row."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row = row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
    return row[-1]


@given(TEXTS, TEXTS, st.integers(1, 9), st.integers(0, 9))
def test_rules_by_their_definitions(one: str, other: str, least: int, more: int) -> None:
    assert judged(exact_match, one, f" {one}\n") is True
    assert judged(exact_match, one, other) is (one.strip() == other.strip())
    assert judged(length_between, one, least=least, most=least + more) is (least <= len(one.strip()) <= least + more)
    if one:
        assert judged(contains, other + one + other, one, ignore_case=False) is True
    longer = max(len(one), len(other))
    wanted = 1 - levenshtein(one, other) / longer if longer else 1.0
    assert judged(edit_similarity, one, other, strip=False) == pytest.approx(wanted)
    assert judged(edit_similarity, other, one, strip=False) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("rule", "answer", "settings", "says"),
    [
        (exact_match, {"town": "Paris", "n": 1}, {"key": "city"}, "no field 'city', got town, n"),
        (contains, "Paris", {"key": "answer"}, "no field 'answer', got output"),
        *((regex, "a", {"pattern": bad}, "does not compile: ") for bad in ("(", "[a", "*a", "a{2,1}")),
        (length_between, "Paris", {"most": 3, "unit": "tokens"}, "unit: got 'tokens', wanted characters or words"),
        *((length_between, "Paris", nothing, "got no bound") for nothing in ({}, {"least": 0}, {"unit": "words"})),
        (length_between, "Paris", {"least": 5, "most": 3}, "least 5 and most 3"),
        (length_between, "Paris", {"most": -1}, "-1"),
        *((concision, "Paris", {"at_most": n}, "at_most: got .*, wanted more than 0") for n in (0, -1.0, float("nan"))),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_an_error_in_one_line(
    rule: Any, answer: Any, settings: dict[str, Any], says: str
) -> None:
    for _ in range(2):  # also where the pattern is known from before
        with pytest.raises((ValueError, KeyError), match=says) as caught:
            judged(rule, answer, PARIS if rule is exact_match else "x", **settings)
        assert "\n" not in str(caught.value)


def test_what_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(regex.__globals__, "MAX_S", 0.05)
    for full in (True, False):
        with pytest.raises(CallError, match=r"the pattern took longer than 0.05 s on 5001 characters") as caught:
            regex({"output": "a" * 5000 + "!"}, pattern="(a|aa|aaa)+b", full=full)
        assert caught.value.kind == "too_slow"
    long = "a" * 180_000
    with pytest.raises(CallError, match="180000 and 180001 characters are too long to compare") as caught:
        edit_similarity({"output": long}, {"output": long + "b"})
    assert caught.value.kind == "too_slow"
    assert edit_similarity({"output": long}, {"output": long}) == 1.0


# What is stored


def stored(rule: Any, answer: Any, wanted: Any = None, **settings: Any) -> Judgement:
    bound = bind(rule, settings=settings)
    reference = None if wanted is None else {"answer": wanted}
    available = {"inputs": {}, "outputs": {"output": answer}, "reference_outputs": reference, "run": None}
    (judgement,) = read_returned(bound, bound.call(available), available)
    assert isinstance(judgement, Judgement)
    return judgement


@pytest.mark.parametrize(
    ("rule", "answer", "wanted", "settings", "comment"),
    [
        (contains, "Lyon", ["Paris", "Lyon", "Nice"], {}, 'missing: "Paris", "Nice"'),
        (contains, "Rome", list("abcdfgh"), {}, 'missing: "a", "b", "c", "d", "f" and 2 more'),
        (contains, "Rome", None, {"any_of": ["Paris", "Lyon"]}, 'none of: "Paris", "Lyon"'),
        (contains, "Rome", None, {"any_of": "x", "all_of": "y"}, 'missing: "y"; none of: "x"'),
        (exact_match, "Rome", "Paris", {}, 'got "Rome", wanted "Paris"'),
        (length_between, "a b c", None, {"most": 2, "unit": "words"}, "3 words, wanted at most 2"),
        (regex, "Rome", None, {"pattern": r"\d+"}, r"no match of \d+"),
        (regex, "42!", None, {"pattern": r"\d+", "full": True}, r"the whole does not match \d+"),
        (concision, "It is Rome.", "Rome", {}, "11 characters, wanted at most 2 times 4"),
        (final_answer, "Rome", "Paris", {"how": "contains"}, 'missing: "Paris"'),
    ],
)
def test_a_rule_says_what_it_missed(
    rule: Any, answer: Any, wanted: Any, settings: dict[str, Any], comment: str
) -> None:
    judgement = stored(rule, answer, wanted, **settings)
    assert (judgement.value, judgement.data_type, judgement.comment) == (0.0, "BOOLEAN", comment)


def test_a_yes_has_no_comment_and_long_texts_are_cut() -> None:
    for rule, settings in ((contains, {}), (exact_match, {}), (regex, {"pattern": "Paris"})):
        assert stored(rule, "Paris", "Paris", **settings).comment is None
    comment = stored(exact_match, "x" * 1000, "y\n" * 1000).comment or ""
    assert len(comment) < 150 and "\n" not in comment and comment.count("…") == 2


def test_the_text_of_an_answer_and_the_value_of_a_reference() -> None:
    shown = ((0, "0"), (False, "false"), ([1], "[1]"), ({"b": 1, "a": "é"}, '{"a": "é", "b": 1}'), (None, ""))
    for value, text in shown:
        assert answer_text({"output": value}, None) == text
    for value in (0, False, "", []):
        assert reference_value({"answer": value}, None) == value
    assert reference_value({"expected": 7}, "output") == reference_value({"output": 7, "note": 1}, "output") == 7
    with pytest.raises(KeyError, match="no field 'output', got answer, note"):
        reference_value({"answer": 7, "note": "easy"}, "output")
