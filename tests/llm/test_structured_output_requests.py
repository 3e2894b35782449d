"""The three response formats: what the request asks for."""

from copy import deepcopy
from typing import Any

import pytest
from response_formats import CORRECT, GRADE, REASONING, SCORE, VERDICT, fault, flat

from evalflows.llm.structured_output import with_response_format
from evalflows.specs.connection import AnswerForm
from evalflows.specs.errors import CallError

FORMS: list[AnswerForm] = ["json_schema", "tool_call", "text"]
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Judge."}], "temperature": 0.0}


def text_asked(schema: dict[str, Any]) -> str:
    """Return the instruction that is appended to the message."""
    content = with_response_format(REQUEST, schema, "text")["messages"][-1]["content"]
    assert content.startswith("Judge.\n\n")
    return str(content).removeprefix("Judge.\n\n")


@pytest.mark.parametrize("form", FORMS)
def test_the_request_is_copied_and_its_fields_are_kept(form: AnswerForm) -> None:
    request, schema = deepcopy(REQUEST), deepcopy(VERDICT)
    body = with_response_format(request, schema, form)
    assert (request, schema) == (REQUEST, VERDICT)
    assert (body["model"], body["temperature"]) == ("m", 0.0)
    assert body["messages"][0]["content"].startswith("Judge.")


def test_json_schema_is_sent_as_response_format() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": VERDICT}}
    assert with_response_format(REQUEST, VERDICT, "json_schema") == REQUEST | {"response_format": form}
    nameless = with_response_format(REQUEST, {"type": "integer"}, "json_schema")
    assert nameless["response_format"]["json_schema"]["name"] == "answer"


def test_the_tool_call_is_forced_with_the_schema_as_parameters() -> None:
    body = with_response_format(REQUEST, VERDICT | {"title": "my verdict!"}, "tool_call")
    (tool,) = body["tools"]
    assert tool["function"]["parameters"]["properties"] == VERDICT["properties"]
    assert tool["function"]["name"] == "my_verdict_"  # the letters that providers take
    assert body["tool_choice"] == {"type": "function", "function": {"name": "my_verdict_"}}
    assert "response_format" not in body


@pytest.mark.parametrize(
    ("schema", "form", "request_has", "says"),
    [
        (VERDICT, "tool_call", {"tools": [{"type": "function"}]}, "got tools, wanted none"),
        ({"type": "array"}, "tool_call", {}, "got a schema of type 'array', wanted 'object'"),
        (
            {"type": "array", "items": {"type": "string"}},
            "text",
            {},
            "got no field that can be a tag, wanted an object",
        ),
        (
            flat(correct=CORRECT, parts={"type": "array"}),
            "text",
            {},
            "got 'parts' of another kind, wanted an object of booleans",
        ),
        (flat(inner=flat(correct=CORRECT)), "text", {}, "got 'inner' of another kind, wanted an object of booleans"),
        (
            flat(maybe={"type": ["boolean", "null"]}),
            "text",
            {},
            "got 'maybe' of another kind, wanted an object of booleans",
        ),
        (flat(grade={"enum": ["A", None]}), "text", {}, "got 'grade' of another kind, wanted an object of booleans"),
        (flat(grade={"enum": ["A", "B]]"]}), "text", {}, "got 'grade' of another kind, wanted an object of booleans"),
        (flat(**{"a: b": CORRECT, "c]": CORRECT}), "text", {}, "got the name 'c]', which cannot be written in a tag"),
        (flat(Sure=CORRECT, sure=CORRECT), "text", {}, "got two names that differ only in case"),
        (flat(praise=REASONING, blame=REASONING, score=SCORE), "text", {}, "got 2 free texts (praise, blame)"),
        (flat(reasoning=REASONING), "text", {}, "got no field that can be a tag"),
        (flat(correct={"type": "bolean"}), "json_schema", {}, "schema: $.properties.correct.type: 'bolean'"),
    ],
)
def test_unsupported_schemas_are_a_bad_request_in_one_line(
    schema: dict[str, Any], form: AnswerForm, request_has: dict[str, Any], says: str
) -> None:
    with pytest.raises(CallError) as raised:
        with_response_format(REQUEST | request_has, schema, form)
    assert raised.value.kind == "bad_request"
    assert says in str(raised.value) and "\n" not in str(raised.value)


def test_the_instruction_lists_each_tag_with_its_allowed_values() -> None:
    instruction = text_asked(
        flat(reasoning={"type": "string", "description": "two sentences"}, correct=CORRECT, score=SCORE, grade=GRADE)
    )
    lines = instruction.splitlines()
    assert lines[0].startswith("First write the reasoning (two sentences), as plain text. Then end your answer with")
    assert lines[1:4] == ["[[correct: …]]", "[[score: …]]", "[[grade: …]]"]
    assert "correct is true or false." in instruction
    assert "score is a whole number, at least 1, at most 5." in instruction
    assert 'grade is one of "A", "B", "not good", without quotes.' in instruction


def test_the_instruction_itself_is_a_bad_answer() -> None:
    for schema in (VERDICT, flat(correct=CORRECT), flat(grade=GRADE), flat(correct=CORRECT, reasoning=REASONING)):
        assert fault({"content": text_asked(schema)}, "text", schema)[0] == "bad_answer"


def test_the_instruction_follows_the_order_of_the_schema() -> None:
    first, after, alone = (
        text_asked(schema) for schema in (VERDICT, flat(correct=CORRECT, reasoning=REASONING), flat(correct=CORRECT))
    )
    assert first.index("reasoning") < first.index("[[correct") and first.startswith("First write the reasoning")
    assert after.startswith("Begin your answer with this line") and "Then repeat this line" in after
    assert alone.startswith("Answer with this line") and "reasoning" not in alone


def test_the_instruction_is_appended_to_the_last_user_message() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:"}}
    conversation = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "first"},
        {"role": "user", "content": [picture]},
        {"role": "assistant", "content": "so"},
    ]
    sent = with_response_format({"messages": conversation}, VERDICT, "text")["messages"]
    assert [sent[i] for i in (0, 1, 3)] == [conversation[i] for i in (0, 1, 3)]
    assert sent[2]["content"][0] == picture and "[[correct: …]]" in sent[2]["content"][1]["text"]
    assert conversation[2]["content"] == [picture]
    (alone,) = with_response_format({"messages": []}, VERDICT, "text")["messages"]
    assert alone["role"] == "user"
