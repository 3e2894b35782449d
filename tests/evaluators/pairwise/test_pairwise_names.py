"""The pairwise evaluators by their short names: bound, listed, documented."""

import inspect
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalflows.cli.described import built_in, described
from evalflows.cli.main import cli
from evalflows.evaluators import PAIRWISE, SHORT_NAMES
from evalflows.evaluators.call import OFFERED, bind
from evalflows.evaluators.named import named
from evalflows.specs.errors import InputError
from evalflows.specs.template import placeholders

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "pairwise.md").read_text(encoding="utf-8")
NEEDED = {"recorded_preference": {"path": "votes.jsonl"}}


@pytest.mark.parametrize("name", PAIRWISE)
def test_each_compares_two_answers_and_says_what_it_cannot_see(name: str) -> None:
    assert name in SHORT_NAMES
    bound = bind(named(name), settings=NEEDED.get(name), scope="pair")
    assert (bound.name, bound.scope) == (name, "pair")
    parameters = inspect.signature(named(name)).parameters.values()
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters if p.name not in OFFERED["pair"])
    assert "cannot see" in " ".join((inspect.getdoc(named(name)) or "").split())


def test_a_setting_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        InputError, match="got the setting 'labelled', wanted one of: criteria, key, reference, prompt,"
    ):
        bind(named("pairwise_preference"), settings={"labelled": True}, scope="pair")
    with pytest.raises(InputError, match="'recorded_preference': asks for 'path'"):
        bind(named("recorded_preference"), scope="pair")


def test_they_alone_are_listed_as_judging_pairs() -> None:
    assert [one.name for one in built_in() if one.scope == "pair"] == [*PAIRWISE]
    preference, recorded = map(described, PAIRWISE)
    assert preference.asks_for == ["inputs", "outputs", "reference_outputs", "metadata", "complete"]
    assert (preference.judges_by, preference.reference) == ("model", "asked for")
    assert recorded.asks_for == ["runs", "example"]
    assert (recorded.judges_by, recorded.reference, recorded.settings) == (
        "rule",
        "",
        {"path": "needed", "order": "null"},
    )
    for one in (preference, recorded):
        assert (one.returns, one.metrics) == (["first, second or tie"], {})
        assert one.about.startswith("Which of two answers ")


@pytest.mark.parametrize("name", PAIRWISE)
def test_none_is_tried_on_one_answer(name: str) -> None:
    row = '{"inputs": "q", "outputs": "a"}'
    done = CliRunner().invoke(cli, ["evaluators", name, "--try", row])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"evalflows: --try: {name} compares two answers, wanted an evaluator of one answer\n"


@pytest.mark.parametrize("name", PAIRWISE)
def test_each_is_documented_with_its_settings(name: str) -> None:
    section = PAGE.partition(f"## `{name}`")[2].partition("\n## ")[0]
    for setting in described(name).settings:
        assert f"- `{setting}`" in section, setting
    assert "annot see" in section
    assert f"- `{name}`: " in (DOCS / "evaluators.md").read_text(encoding="utf-8")


def test_what_may_be_asked_for_and_returned_is_documented() -> None:
    for asked in OFFERED["pair"]:
        assert f"`{asked}`" in PAGE, asked
    section = PAGE.partition("## `pairwise_preference`")[2].partition("\n## ")[0]
    for placeholder in placeholders(named("pairwise_preference").__globals__["LABELLED"]) | {"metadata"}:
        assert f"`{{{placeholder}}}`" in section, placeholder


def test_the_functions_in_the_document_can_be_bound() -> None:
    blocks = [block for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S) if "evaluate(" not in block]
    assert blocks
    for block in blocks:
        found: dict[str, object] = {}
        exec(compile(block, "pairwise.md", "exec"), found)
        functions = [one for one in found.values() if inspect.isfunction(one)]
        assert functions
        for function in functions:
            assert bind(function, scope="pair").asked
