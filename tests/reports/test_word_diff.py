"""The words that differ: both texts can be put together from the parts, and long texts end."""

from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from evalflows.reports.word_diff import MAX_CHARACTERS, WordDiff, with_context, word_diff

TEXTS = st.text(alphabet="ab ,.\n", max_size=40)


def side(parts: WordDiff, left_out: str) -> str:
    return "".join(text for kind, text in parts if kind != left_out)


@given(TEXTS, TEXTS)
def test_the_parts_are_both_texts(old: str, new: str) -> None:
    parts = word_diff(old, new)
    assert (side(parts, "added"), side(parts, "removed")) == (old, new)
    assert all(text for _, text in parts)
    assert old != new or [kind for kind, _ in parts] in ([], ["same"])


def test_words_are_compared_whole() -> None:
    assert word_diff("The cat sat.", "The cats sat!") == [
        ("same", "The "),
        ("removed", "cat"),
        ("added", "cats"),
        ("same", " sat"),
        ("removed", "."),
        ("added", "!"),
    ]


def test_a_rewritten_phrase_is_one_change() -> None:
    assert word_diff("I do not know that.", "I can say that.") == [
        ("same", "I "),
        ("removed", "do not know"),
        ("added", "can say"),
        ("same", " that."),
    ]


def test_long_texts_are_cut_and_say_so() -> None:
    began = perf_counter()
    *_, (kind, said) = word_diff("a, " * 333_333, "b. " * 100)
    assert perf_counter() - began < 5
    assert (kind, said) == ("cut", f" … {999_999 - MAX_CHARACTERS:,} of the old text's characters are not compared")
    assert word_diff("same", "same words", most=4) == [
        ("same", "same"),
        ("cut", " … 6 of the new text's characters are not compared"),
    ]


def test_what_is_the_same_is_shortened_around_the_changes() -> None:
    parts = word_diff("a " * 100 + "x" + " b" * 100, "a " * 100 + "y" + " b" * 100)
    assert with_context(parts, around=4) == [("same", " … a a "), ("removed", "x"), ("added", "y"), ("same", " b b … ")]
    assert with_context(word_diff("one", "one"), around=1) == [("same", "one")]
