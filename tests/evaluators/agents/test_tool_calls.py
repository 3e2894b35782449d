"""tool_selection, tool_arguments, tool_order and step_efficiency, by figures worked out by hand."""

from typing import Any

import pytest

from evalflows.evaluators.agents.tools import step_efficiency, tool_arguments, tool_order, tool_selection
from evalflows.evaluators.score import Score
from evalflows.evaluators.views import RunView

RULES = (tool_selection, tool_arguments, tool_order, step_efficiency)


def calls(*names: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": {}} for name in names]}


def made(**arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": "f", "arguments": arguments}]}


def value(score: Score | list[Score] | None) -> Any:
    assert score is not None
    return score[0].value if isinstance(score, list) else score.value


def selected(wanted: dict[str, Any], done: dict[str, Any]) -> list[Any]:
    scores = tool_selection(None, done, wanted)
    assert scores is not None and [score.key for score in scores] == [None, "tool_precision", "tool_recall"]
    return [score.value for score in scores]


def arguments(wanted: dict[str, Any], done: dict[str, Any], **settings: Any) -> Any:
    return value(tool_arguments(None, done, wanted, **settings))


def order(wanted: dict[str, Any], done: dict[str, Any], **settings: Any) -> Any:
    return value(tool_order(None, done, wanted, **settings))


def efficiency(wanted: dict[str, Any], done: dict[str, Any], **settings: Any) -> Any:
    return value(step_efficiency(None, done, wanted, **settings))


@pytest.mark.parametrize("rule", RULES)
def test_no_call_is_right_where_none_is_wanted_and_without_wanted_calls_no_rule_applies(rule: Any) -> None:
    for reference in (None, {}, {"answer": "4"}, {"tool_calls": None}):
        assert rule(None, calls("a"), reference) is None
    assert value(rule(None, {"output": "Hello."}, calls())) == 1
    assert value(rule(None, {"output": "Hello."}, calls("a"))) == 0
    assert value(rule(None, calls("a"), calls())) == 0
    run = RunView(id="r", inputs={}, outputs={}, steps=[{"kind": "tool", "name": "a", "inputs": {}}])
    assert value(rule({}, {"output": "x"}, calls("a"), run)) == 1, "the steps are read where the outputs have no calls"


def test_f1_precision_and_recall_count_a_tool_as_often_as_it_is_wanted() -> None:
    # Wanted a a b; made a b b c: hits are a and b, so 2 of 4, 2 of 3, and 4 of 7.
    assert selected(calls("a", "a", "b"), calls("a", "b", "b", "c")) == pytest.approx([4 / 7, 2 / 4, 2 / 3])
    scores = tool_selection(None, calls("a", "c"), calls("a", "b"))
    assert scores and scores[0].comment == "not called: b; not wanted: c"
    same = tool_selection(None, calls("a"), calls("a"))
    assert same and same[0].comment is None


@pytest.mark.parametrize(
    ("wanted", "got", "right"),
    [
        (1, 1.0, True),
        (1, "1", False),
        (1, True, False),
        (0, None, False),
        ([1, {"a": [2.0]}], [1.0, {"a": [2]}], True),
        ([1, 2], [2, 1], False),
        ([1, 2], [1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (10**400, 10**400, True),
    ],
)
def test_values_are_equal_as_json_is(wanted: Any, got: Any, right: bool) -> None:
    assert arguments(made(x=wanted), made(x=got)) == float(right)
    assert order(made(x=wanted), made(x=got), arguments="exact") is right
    assert order(made(x=wanted), made(x=got)) is True  # by name


def test_exact_is_all_or_nothing_and_calls_are_paired_so_that_they_are_right_the_most() -> None:
    wanted, got = made(a=1, b=2, c=3), made(a=1, b=5, d=4)
    assert arguments(wanted, got) == 0
    assert arguments(wanted, got, arguments="per_argument") == 1 / 4  # of a, b, c and d only a
    assert arguments(wanted, wanted, arguments="per_argument") == 1
    assert arguments(made(), made(a=1), arguments="per_argument") == 0
    assert arguments(made(), made(), arguments="per_argument") == 1

    def two(*pairs: tuple[int, int]) -> dict[str, Any]:
        return {"tool_calls": [{"name": "f", "arguments": {"a": a, "b": b}} for a, b in pairs]}

    wanted = two((1, 2), (1, 3))
    # In the order that they stand in, 1/2 and 1/2; but (1, 3) with (1, 3) is 1, and then (1, 2) with (1, 9) 1/2.
    assert arguments(wanted, two((1, 3), (1, 9)), arguments="per_argument") == (1 + 1 / 2) / 2
    assert arguments(wanted, two((1, 3), (1, 2))) == 1
    done = {"tool_calls": [*made(x=1)["tool_calls"], *calls("look", "look")["tool_calls"]]}
    assert arguments(made(x=1), done) == pytest.approx(1 / 3)
    assert arguments(made(x=1), done, extra_calls="ignored") == 1
    assert arguments(calls(), done, extra_calls="ignored") == 0  # nothing was wanted
    other = {"tool_calls": [{"name": "g", "arguments": {"x": 1}}]}
    for how in ("exact", "per_argument", "types"):
        assert arguments(made(x=1), other, arguments=how) == 0


@pytest.mark.parametrize("how", ["exact", "per_argument", "types"])
def test_broken_json_matches_nothing_not_even_a_call_without_arguments(how: str) -> None:
    broken = {"tool_calls": [{"name": "f", "arguments": '{"x": '}]}
    assert arguments(made(), broken, arguments=how) == 0
    assert arguments(made(x=1), broken, arguments=how) == 0
    assert arguments({"tool_calls": [{"f": {"x": [""]}}]}, broken, arguments="allowed") == 0
    assert order(made(), broken, arguments="exact") is False
    assert arguments(made(), {"tool_calls": [{"name": "f", "arguments": "{}"}]}, arguments=how) == 1


PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "near": {"type": ["array", "null"]},
        "any": {},
        "share": {"type": "float"},
    },
    "required": ["city", "days"],
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}, {"name": "now"}]


@pytest.mark.parametrize(
    ("got", "share"),
    [
        ({"city": "Rome", "days": 2}, 1),
        ({"city": "Rome", "days": 2.0, "near": None, "any": {}, "share": 1}, 1),
        ({"city": "Rome", "days": 2.5}, 1 / 2),
        ({"city": "Rome", "days": "2"}, 1 / 2),
        ({"city": "Rome"}, 1 / 2),
        ({"city": "Rome", "days": 2, "made_up": 1}, 2 / 3),
        ({"city": "Rome", "days": 2, "near": "Ostia"}, 2 / 3),
        ({}, 0),
    ],
)
def test_types_may_be_those_of_a_tools_schema_and_then_no_reference_is_needed(got: Any, share: float) -> None:
    assert value(tool_arguments(None, made(**got), None, arguments="types", tools=TOOLS)) == pytest.approx(share)
    wanted = made(city="Oslo", days=1)
    assert arguments(wanted, made(**got), arguments="types", tools=TOOLS) == pytest.approx(share)


TRUTH = {
    "tool_calls": [
        {
            "book": {
                "place": ["New York, NY", "NYC"],
                "nights": [2],
                "stars": [4, ""],
                "note": ["", "it's late"],
                "guests": [[{"name": ["Ann"], "age": [30, ""]}]],
                "range": [{"least": [100], "most": [200.0, 250]}],
                "pets": [None, False],
            }
        }
    ]
}
RIGHT: dict[str, Any] = {
    "place": "new york ny",
    "nights": 2.0,
    "guests": [{"name": "ann"}],
    "range": {"least": 100, "most": 250},
}


def booked(**changes: Any) -> float:
    given = {name: value for name, value in (RIGHT | changes).items() if value != "LEFT OUT"}
    result: float = arguments(TRUTH, {"tool_calls": [{"name": "book", "arguments": given}]}, arguments="allowed")
    return result


def test_just_the_allowed_values_are_right() -> None:
    right: list[dict[str, Any]] = [
        *({}, {"place": "nyc"}, {"stars": 4}, {"note": 'It"s late'}, {"guests": ({"name": "Ann", "age": 30},)}),
        *({"range": {"most": 200, "least": 100.0}}, {"pets": None}),
    ]
    wrong: list[dict[str, Any]] = [
        *(
            {"place": "New York City"},
            {"place": "LEFT OUT"},
            {"nights": 3},
            {"stars": 5},
            {"guests": [{"name": "Bob"}]},
        ),
        *({"guests": [{"name": "Ann"}, {"name": "Ann"}]}, {"guests": []}, {"range": {"least": 100}}, {"pets": 0}),
        {"made_up": 1},
    ]
    assert [changes for changes in right if booked(**changes) != 1] == []
    assert [changes for changes in wrong if booked(**changes) != 0] == []


def test_a_truth_without_lists_is_an_error_and_the_comment_has_the_calls_that_are_not_right() -> None:
    with pytest.raises(ValueError, match="reference: f: x: got 1, wanted a list of allowed values"):
        arguments(made(x=1), made(x=1), arguments="allowed")
    wanted = {"tool_calls": [*made(x=1)["tool_calls"], *calls("a", "b")["tool_calls"]]}
    done = {"tool_calls": [*calls("b", "c")["tool_calls"], *made(x=2)["tool_calls"]]}
    score = tool_arguments(None, done, wanted)
    value = 'argument x has the wrong value: wanted f({"x": 1}), got f({"x": 2})'
    assert score == Score(value=1 / 3, comment=f"{value}; no call of a({{}}); not wanted: c({{}})")
    allowed = {"tool_calls": [{"f": {"a": [1], "b": ["x", ""], "c": [2], "d": ["Y"]}}]}
    three = "argument a is missing, argument c has the wrong type (string), argument e is not wanted: wanted f("
    for reference, rule, wrong in (
        (allowed, "allowed", three),
        (made(a=1, c=2, d="Y"), "types", three),
        (made(c="2", d="Y", e=0), "exact", "argument d has the wrong value: wanted f("),
    ):
        found = tool_arguments(None, made(c="2", d="y", e=0), reference, arguments=rule)
        assert found and found.comment and found.comment.startswith(wrong), found
    long = tool_arguments(None, made(x="y" * 5000), made(x="z" * 5000))
    assert long and len(long.comment or "") < 400


def test_each_relation_holds_where_it_does() -> None:
    modes = ("strict", "unordered", "subset", "superset")
    for done, holding in (
        ("abb", {*modes}),
        ("bab", {"unordered", "subset", "superset"}),
        ("ab", {"subset"}),
        ("b", {"subset"}),
        ("abbb", {"superset"}),
        ("cbab", {"superset"}),
        ("ac", set()),
        ("aab", set()),
    ):
        assert {mode for mode in modes if order(calls("a", "b", "b"), calls(*done), mode=mode)} == holding, done


def test_with_arguments_the_calls_are_told_apart_by_them() -> None:
    wanted = {"tool_calls": [{"f": {"x": [1, 2]}}, {"f": {"x": [1]}}]}
    one_then_two = {"tool_calls": [{"f": {"x": 1}}, {"f": {"x": 2}}]}
    assert order(wanted, one_then_two, arguments="allowed", mode="strict") is False
    assert order(wanted, one_then_two, arguments="allowed", mode="unordered") is True  # the 2 takes the first place
    twice_two = {"tool_calls": [{"f": {"x": 2}}, {"f": {"x": 2}}]}
    assert order(wanted, twice_two, arguments="allowed", mode="unordered") is False
    assert order(wanted, twice_two, mode="unordered") is True
    assert order(made(x=1), made(x="1"), arguments="types") is False
    assert order(made(x=1), made(x=2), arguments="types") is True


@pytest.mark.parametrize(
    ("done", "share"),
    [
        (("a", "b"), 1.0),
        (("a", "x", "b", "x"), 0.5),
        (("a", "a", "a"), 2 / 3),
        (("a",), 1.0),  # it cannot see what is left undone
        (("x",), 0.0),
        (("x", "y", "z"), 0.0),
    ],
)
def test_more_steps_than_are_wanted_cost_and_none_of_the_wanted_is_0(done: tuple[str, ...], share: float) -> None:
    assert efficiency(calls("a", "b"), calls(*done)) == pytest.approx(share)


@pytest.mark.parametrize(
    ("rule", "settings", "says"),
    [
        (
            tool_arguments,
            {"arguments": "fuzzy"},
            "arguments: got 'fuzzy', wanted one of exact, per_argument, types, al",
        ),
        (tool_arguments, {"tools": TOOLS}, "tools: got tools with arguments 'exact', wanted arguments 'types'"),
        (tool_arguments, {"arguments": "types", "tools": "f"}, "tools: got 'f', wanted a path: inputs.…, metadata.…"),
        (tool_arguments, {"extra_calls": "fine"}, "extra_calls: got 'fine', wanted wrong or ignored"),
        (tool_arguments, {"arguments": "types", "tools": [{}]}, "tools: got {}, wanted name and parameters"),
        (tool_order, {"mode": "sorted"}, "mode: got 'sorted', wanted one of strict, unordered, subset, superset"),
        (tool_order, {"arguments": "per_argument"}, "arguments: got 'per_argument', wanted one of ignored, exact"),
        (step_efficiency, {"key": "n"}, "reference: n: got -1, wanted at least 0 steps"),
    ],
)
def test_a_setting_that_cannot_be_used_is_an_error(rule: Any, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        rule(None, calls("a"), calls("a") | {"n": -1}, **settings)


def test_a_tool_that_there_is_not_has_no_right_types_and_without_a_call_there_is_nothing_to_judge() -> None:
    assert value(tool_arguments(None, calls("g"), None, arguments="types", tools=TOOLS)) == 0
    assert value(tool_arguments(None, calls("g", "now"), None, arguments="types", tools=TOOLS)) == 1 / 2
    assert tool_arguments(None, {"output": "x"}, None, arguments="types", tools=TOOLS) is None
    assert value(tool_arguments(None, {"output": "x"}, calls("now"), arguments="types", tools=TOOLS)) == 0


def test_the_wanted_number_may_be_given_itself() -> None:
    assert efficiency({"steps": 2}, calls("a", "b", "c", "d"), key="steps") == 0.5
    assert efficiency({"steps": 2}, calls("a"), key="steps") == 1
    assert efficiency({"steps": 2}, {"output": "x"}, key="steps") == 0
    assert efficiency({"steps": 0}, {"output": "x"}, key="steps") == 1
    assert efficiency({"steps": 0}, calls("a"), key="steps") == 0
    assert step_efficiency(None, calls("a"), {"other": 2}, key="steps") is None
