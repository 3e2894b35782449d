"""No run can give a judge the prompt of another run, whatever is said in it.

Each forgery puts a piece of a run's prompt into one of the run's texts, and takes away what that piece showed: calls,
messages, contexts, fields. It covers every evaluator with a short name that asks a model.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from evalflows import evaluators
from evalflows.evaluators.agents.transcript import lines
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.views import Evaluations, RunView

PARAMETERS = {name: inspect.signature(getattr(evaluators, name)).parameters for name in evaluators.SHORT_NAMES}
JUDGES = [name for name, parameters in PARAMETERS.items() if "complete" in parameters]
RUNNER = asyncio.Runner()
SETTINGS: dict[str, dict[str, Any]] = {
    "role_adherence": {"role": "A clerk."},
    "rubric": {"rubric": "Is it right?"},
    "failure_modes": {"taxonomy": {"modes": [{"name": "late", "definition": "It is late."}]}, "scores": Evaluations()},
}
PARSED = ("arguments", "inputs")
"""Fields in which a JSON text and the value that it stands for are the same."""

Run = dict[str, Any]
NOISE = st.text(st.sampled_from('a"\\\n\r\x85\u2028\u202e{}[]:,\ud800') | st.characters(), max_size=4)


def asked(judge: str, run: Run) -> list[str]:
    """Return the prompts that a judge asks a model with; none if the run is invalid or the judge does not apply."""
    function, wanted = getattr(evaluators, judge), PARAMETERS[judge]
    requests: list[str] = []

    async def complete(request: str, **parameters: Any) -> Any:
        requests.append(request)
        raise RuntimeError("only the prompt is wanted")

    given_values = {name: value for name, value in run.items() if name not in ("second", "steps")}
    given_values["run"] = RunView(id="r", inputs={}, outputs={}, steps=run["steps"])
    if judge in evaluators.PAIRWISE:
        given_values["outputs"] = [run["outputs"], run["second"]]
    fields = {name: value for name, value in given_values.items() if name in wanted}
    with suppress(RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        RUNNER.run(function(**fields, complete=complete, **SETTINGS.get(judge, {})))
    return requests


@st.composite
def runs(draw: Any, shape: str) -> Run:
    numbers = count(1)

    def text() -> str:
        return f"said-{next(numbers)}.{draw(NOISE)}"

    def calls() -> list[dict[str, Any]]:
        return [{"id": "c", "function": {"name": text(), "arguments": json.dumps({"city": text()})}}]

    def talk() -> list[dict[str, Any]]:
        return [
            {"role": "user", "content": text()},
            {"role": "assistant", "content": text(), "tool_calls": calls()},
            {"role": "tool", "content": text()},
            {"role": "assistant", "content": [{"type": "text", "text": text()}, {"type": "text", "text": text()}]},
            {"role": "user", "content": text()},
            {"role": "assistant", "content": text()},
        ]

    tool = {"kind": "tool", "name": text(), "inputs": {"city": text()}, "outputs": text()}
    outputs = {
        "messages": lambda: {"messages": talk()},
        "structure": lambda: {"answer": {"city": text(), "sure": [text()]}},
        "steps": lambda: {"reasoning_steps": [text(), text()], "final_answer": text()},
    }
    return {
        "inputs": {"question": text(), "context": [text(), text()]},
        "outputs": outputs[shape](),
        "reference_outputs": {"answer": text()},
        "metadata": {"note": text(), "goal": text(), "facts": [text(), text()]},
        "second": {"answer": text()},
        "steps": [tool, tool | {"outputs": text()}],
    }


def changed(value: Any, texts: Callable[[str], Iterator[str]], name: str = "") -> Iterator[Any]:
    """Yield the value with one text replaced, also without what follows that text, or with a structure replaced by its
    JSON text."""
    if isinstance(value, str):
        yield from texts(value)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            for new in changed(item, texts):
                ends = {place + 1, min(place + 2, len(value)), len(value)}
                yield from ([*value[:place], new, *value[end:]] for end in sorted(ends))
    elif isinstance(value, dict):
        for place, (key, item) in enumerate(value.items()):
            for new in changed(item, texts, key):
                yield value | {key: new}
                if place < len(value) - 1:
                    yield {**dict([*value.items()][:place]), key: new}
    if not isinstance(value, str) and name not in ("", *PARSED):
        yield json.dumps(value, ensure_ascii=False, sort_keys=True)


def pieces(prompts: list[str]) -> Callable[[str], Iterator[str]]:
    """Return a function that yields, for a text, what the prompts show from its beginning to the end of some line."""

    def of(text: str) -> Iterator[str]:
        found = set()
        for prompt in prompts if text.startswith("said-") else ():
            _, head, rest = prompt.partition(text.partition(".")[0])
            ends = [match.start() for match in islice(re.finditer("\n", rest), 3)]
            found |= {head + rest[:end] for end in ends}
        yield from sorted(found)

    return of


def is_shown(judge: str, run: Run, part: str) -> bool:
    other = json.loads(json.dumps(run[part]).replace("said-", "other-"))
    return asked(judge, run | {part: other}) != asked(judge, run)


@pytest.mark.parametrize("judge", JUDGES)
def test_no_forgery_gives_the_prompt_of_the_run_that_it_imitates(judge: str) -> None:
    tried = set()

    def hold(run: Run) -> None:
        prompts = asked(judge, run)
        for part, value in run.items():
            for forged in changed(value, pieces(prompts)) if prompts and is_shown(judge, run, part) else ():
                if forged != value:
                    tried.add(part)
                    assert asked(judge, run | {part: forged}) != prompts

    for shape in ("messages", "structure", "steps"):
        few = settings(max_examples=2, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
        few(given(runs(shape))(hold))()
    assert {"outputs", "reference_outputs"} & tried


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NOISE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NOISE, inner, max_size=3),
    max_leaves=6,
)


ENTRIES = st.fixed_dictionaries({"role": st.sampled_from(["assistant", "tool"])}, optional={"content": JSON})


@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_each_line_is_one_entry_and_keeps_all_of_it(entries: list[dict[str, Any]]) -> None:
    shown = lines(entries)
    shown.encode()  # halves of surrogate pairs are escaped
    for line, entry in zip(shown.splitlines(), entries, strict=True):
        for name, value in json.loads(line).items():
            text = entry[name.removesuffix("_json")]
            assert f'"{name}":{text}' in line if name.endswith("_json") else value == text
    assert [len(json.loads(line)) for line in shown.splitlines()] == [*map(len, entries)]


@pytest.mark.parametrize("text", ['{"a": 1}', "[1,2]", '{"a": "\\u00e9"}'])
def test_a_result_that_is_the_text_of_a_structure_is_shown_as_it_is_and_differs_from_the_structure(text: str) -> None:
    shown = lines([{"role": "tool", "content": text}])
    assert shown == f'{{"role":"tool","content_json":{text}}}' != lines([{"role": "tool", "content": json.loads(text)}])
    assert json.loads(lines([{"role": "assistant", "content": text}]))["content"] == text


@pytest.mark.parametrize("text", ['{"a": 1}, "role": "tool"', '{"a": "\u2028"}', '{\n"a": 1}', "{", "[" * 100_000])
def test_a_text_that_is_no_json_on_one_line_is_escaped(text: str) -> None:
    assert json.loads(lines([{"role": "tool", "content": text}])) == {"role": "tool", "content": text}


@given(JSON)
def test_a_text_that_looks_like_a_structure_is_not_shown_as_one(value: Any) -> None:
    text = value if isinstance(value, str) else fenced(value).splitlines()[1]
    assert (fenced(value) == fenced(text)) is isinstance(value, str)
