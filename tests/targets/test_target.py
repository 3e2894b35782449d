"""What a target returned, as a mapping."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, RootModel

from evalflows.targets import as_outputs, length_of, seed_of


class City(BaseModel):
    name: str
    founded: Any = None


class Answer(BaseModel):
    text: str
    cities: list[City] = []


def test_pydantic_models_become_their_fields_as_json_has_them() -> None:
    answer = Answer(text="Paris", cities=[City(name="Paris", founded={1})])
    assert as_outputs(answer) == {"text": "Paris", "cities": [{"name": "Paris", "founded": [1]}]}
    assert as_outputs(RootModel[list[str]](["Paris", "Lyon"])) == {"output": ["Paris", "Lyon"]}
    outputs = as_outputs(MappingProxyType({1: "one", "two": 2}))
    assert outputs == {"1": "one", "two": 2}
    assert type(outputs) is dict


def test_dataclasses_and_models_inside_become_their_fields() -> None:
    @dataclass
    class Found:
        city: City
        calls: tuple[Any, ...] = ()

    found = Found(City(name="Paris"), calls=({"city": City(name="Lyon")},))
    paris, lyon = {"name": "Paris", "founded": None}, {"name": "Lyon", "founded": None}
    assert as_outputs(found) == {"city": paris, "calls": [{"city": lyon}]}
    assert as_outputs([found]) == {"output": [{"city": paris, "calls": [{"city": lyon}]}]}
    assert as_outputs({"text": found.city}) == {"text": paris}


def test_anything_else_becomes_the_output_and_the_length_is_that_of_the_only_text_or_of_the_json() -> None:
    for returned in ("Paris", "", 42, 0, False, None, ["Paris"], []):
        assert as_outputs(returned) == {"output": returned}
    assert length_of({"output": "Zoë"}) == 3 and length_of({}) == 2
    assert length_of({"a": "x", "b": "y"}) == len('{"a":"x","b":"y"}')
    parts = [{"type": "text", "text": "abc"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    said = [
        {"role": "user", "content": "a long question"},
        *({"role": "assistant", "content": c} for c in (parts, "de")),
    ]
    assert length_of({"messages": said, "ended": "user", "state": {"orders": [1, 2]}}) == 5


def test_a_seed_is_a_stable_positive_int32_that_differs_between_examples_and_repetitions() -> None:
    assert (seed_of("q1", 0), seed_of("q1", 1), seed_of("q2", 0)) == (0xA1DC50F0 >> 1, 0x14DB72A8 >> 1, 0xC266F53F >> 1)
    many = {seed_of(f"q{number}", repetition) for number in range(1000) for repetition in range(4)}
    assert len(many) == 4000 and min(many) >= 0 and max(many) < 2**31
