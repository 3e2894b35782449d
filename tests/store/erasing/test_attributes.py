"""What stays of an observation's attributes: figures and versions, under every name that instrumentations give them."""

import json
from typing import Any

import pytest

from evalflows.specs.attribute_aliases import Source
from evalflows.store.erasing import without_texts


def left(source: Source, attributes: dict[str, Any], contents: dict[str, Any] | None = None, **of: Any) -> Any:
    row = {"attributes": json.dumps(attributes), "contents": None if contents is None else json.dumps(contents)}
    row |= {name: json.dumps(value) for name, value in of.items()}
    return without_texts(source, {"resource": None, "links": None} | row, "2026-11-24", lambda text: "(gone)")


@pytest.mark.parametrize(
    ("source", "given", "kept"),
    [
        (
            "otlp",
            {
                "input.value": "words",
                "user.id": "u",
                "gen_ai.usage.input_tokens": 7,
                "session.id": "s",
                "note": "words",
            },
            {"input.value": "(gone)", "gen_ai.usage.input_tokens": 7, "session.id": "s"},
        ),
        (
            "langfuse",
            {"output": {"a": "words"}, "usageDetails": {"input": 3, "note": "words"}, "userId": "u", "tags": ["u"]},
            {"output": "(gone)", "usageDetails": {"input": 3}},
        ),
        ("langfuse", {"usage": '{"input": 3, "note": "words"}', "metadata": {"customer": 42}}, {"usage": {"input": 3}}),
        (
            "langsmith",
            {"outputs": {"model": "m", "text": "words"}, "extra": {"metadata": {"ls_provider": "p", "user_id": "u"}}},
            {"outputs": {"model": "m", "erased": "(gone)"}, "extra": {"metadata": {"ls_provider": "p"}}},
        ),
        ("rows", {"input": 42, "customer": 42, "tokens_in": 5}, {"input": "(gone)", "tokens_in": 5}),
    ],
)
def test_figures_stay_and_words_go(source: Source, given: dict[str, Any], kept: dict[str, Any]) -> None:
    for attributes, contents in ((given, None), ({}, given)):
        found = left(source, attributes, contents)
        assert json.loads(found["attributes"]) == kept | {"evalflows.erased": "2026-11-24"}
        assert found["contents"] is None and "words" not in str(found)


def test_a_resource_keeps_service_and_version_and_links_their_ids() -> None:
    resource = {"service.name": "bot", "service.version": "1.4", "host.name": "laptop-of-erna"}
    links = [{"trace_id": "t", "span_id": "s", "attributes": {"a": "words"}}, "odd"]
    found = left("otlp", {}, resource=resource, links=links)
    assert json.loads(found["resource"]) == {"service.name": "bot", "service.version": "1.4"}
    assert json.loads(found["links"]) == [{"trace_id": "t", "span_id": "s"}]


def test_what_was_erased_stays_as_it_is() -> None:
    row = {"attributes": '{"evalflows.erased":"2026-01-01"}', "contents": None, "resource": "{}", "links": None}
    assert without_texts("otlp", row, "2026-11-24", str) == row
