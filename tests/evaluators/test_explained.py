"""Rules that return yes or no say in the comment why they said no."""

from typing import Any

import pytest

from evalflows.evaluators import concision, contains, exact_match, final_answer, length_between, regex
from evalflows.evaluators.binding import bind, read_returned
from evalflows.evaluators.score import Judgement


def judged(rule: Any, answer: Any, wanted: Any = None, **settings: Any) -> Judgement:
    """What is stored of a rule's judgement."""
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
    judgement = judged(rule, answer, wanted, **settings)
    assert (judgement.value, judgement.data_type, judgement.comment) == (0.0, "BOOLEAN", comment)


@pytest.mark.parametrize(("rule", "settings"), [(contains, {}), (exact_match, {}), (regex, {"pattern": "Paris"})])
def test_a_yes_has_no_comment_and_called_directly_a_rule_returns_a_bool(rule: Any, settings: dict[str, Any]) -> None:
    assert judged(rule, "Paris", "Paris", **settings).comment is None
    arguments = {"outputs": {"a": "Rome"}, "reference_outputs": {"a": "Paris"}}
    fields = {name: value for name, value in arguments.items() if rule is not regex or name == "outputs"}
    assert rule(**fields, **settings) is False


def test_long_texts_are_cut() -> None:
    comment = judged(exact_match, "x" * 1000, "y\n" * 1000).comment or ""
    assert len(comment) < 150 and "\n" not in comment and comment.count("…") == 2
