"""keyword_safety: blocked words are found as whole words, whatever they are dressed in."""

from typing import Any

import pytest

from evalflows.evaluators.keyword_safety import keyword_safety
from evalflows.evaluators.score import Score


def judged(answer: Any, *blocked: str, **settings: Any) -> Score:
    return keyword_safety({"output": answer}, blocked=list(blocked), **settings)


def safe(answer: Any, *blocked: str, **settings: Any) -> bool:
    value = judged(answer, *blocked, **settings).value
    assert isinstance(value, bool)
    return value


def test_the_comment_lists_all_that_was_found_as_it_was_listed() -> None:
    assert judged("A fine day.", "bomb", "kill") == Score(value=True)
    assert judged("Kill, then BOMB.", "Bomb", "poison", "kill") == Score(value=False, comment="found: Bomb, kill")


WHOLE = {
    "ass": ("ass", "Ass!", "(ass)", "you ass.", "ass-hat", "_ass_", "**ass**", "the\nass", "l'ass"),
    "go to hell": ("Go  To\nHell", "go-to-hell", "go_to_hell", "go... to, hell", "go\u00a0to hell"),
}
PARTS = {
    "ass": ("class", "assess", "grass", "assé", "éass", "ass1", "as s", "a.s.s", "bass player"),
    "go to hell": ("go to hello", "ago to hell", "go to the hell", "gotohell", "hell to go"),
}


def test_words_and_phrases_are_found_as_a_whole_only_and_parted_by_anything_but_words() -> None:
    for phrase in WHOLE:
        assert [text for text in WHOLE[phrase] if safe(text, phrase)] == []
        assert [text for text in PARTS[phrase] if not safe(text, phrase)] == []


def test_a_whole_word_is_found_after_a_part_of_one_also_with_invisible_characters() -> None:
    assert safe("class, ass", "ass") is False
    assert safe("ba a a", "a a") is False
    assert safe("a bomb", "ＢＯ\u200bMB") is False  # noqa: RUF001
    assert safe("cl\u200bass", "ass") is True


@pytest.mark.parametrize(
    "text",
    [
        *("BOMB", "Bomb", "ｂｏｍｂ", "𝐛𝐨𝐦𝐛", "𝐁𝐎𝐌𝐁", "ⓑⓞⓜⓑ"),  # noqa: RUF001
        *("bo\u200bmb", "b\u200co\u200dm\ufeffb", "bo\u00admb", "bo\u2060mb", "\u202ebomb", "bomb\ufe0f", "bo\u034fmb"),
        *("b\U000e0062omb", "bo\u3164mb", "b\u0336o\u0336m\u0336b\u0336"),
    ],
)
def test_another_look_does_not_hide_a_word(text: str) -> None:
    assert safe(f"a {text} here", "bomb") is False


def test_signs_in_a_phrase_are_meant_as_they_are_and_a_single_text_is_one_phrase() -> None:
    assert safe("written in C", "C++") is True
    assert safe("written in C++11", "C++") is False
    assert safe("a.b", "a?b") is True
    assert safe("axb", "a.b") is True
    assert keyword_safety({"output": "a b c"}, blocked="cab").value is True
    assert keyword_safety({"output": "a cab"}, blocked="cab").value is False


def test_scripts_without_spaces_have_no_whole_words_and_vowel_signs_make_other_words() -> None:
    assert safe("这是炸弹吗", "炸弹") is False
    assert safe("这是弹吗", "炸弹") is True
    assert safe("ระเบิดอยู่", "ระเบิด") is False
    assert safe("कला", "कल") is True
    assert safe("कल आना", "कल") is False


def test_an_allowed_phrase_excuses_what_stands_within_it_and_no_more() -> None:
    settings = {"allowed": ["kill switch", "Bath Bomb"]}
    assert safe("Press the KILL-SWITCH by the bath bomb.", "kill", "bomb", **settings) is True
    assert safe("Press the kill switch and kill.", "kill", "bomb", **settings) is False
    assert safe("skill switch, kill", "kill", **settings) is False
    assert safe("kill switch blade", "switch blade", allowed=["kill switch"]) is False
    assert safe("go please to hell", "go to hell", allowed=["please"]) is True
    assert safe("a bomb", "bomb", allowed=["bombs", "a"]) is False
    assert safe("a bath bomb", "bomb", allowed="bath bomb") is True


def test_every_text_of_a_structure_is_looked_at_and_no_names_of_fields() -> None:
    outputs = {"answer": "fine", "steps": [{"say": "one\nass"}]}  # as JSON: one\nass, in one word
    assert keyword_safety(outputs, blocked=["ass"]).value is False
    assert keyword_safety(outputs, blocked=["nass"]).value is True
    assert keyword_safety(outputs, blocked=["ass"], key="answer").value is True
    assert keyword_safety({"hate": False, "text": "hello"}, blocked=["hate"]).value is True
    assert safe(None, "null") is True


@pytest.mark.parametrize("phrase", ["", " ", "\u200b", None])
def test_an_empty_phrase_is_an_error(phrase: Any) -> None:
    for blocked in (phrase, ["bomb", phrase]):
        with pytest.raises(ValueError, match=r"blocked: got .*, wanted a word or a phrase"):
            keyword_safety({"output": "fine"}, blocked=blocked)
    with pytest.raises(ValueError, match="allowed: got "):
        keyword_safety({"output": "fine"}, blocked=["bomb"], allowed=[phrase])
    with pytest.raises(ValueError, match="blocked: got nothing, wanted at least one"):
        keyword_safety({"output": "fine"}, blocked=[])
