"""The assertions, on experiments with known results."""

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from gated import drawn, fallen, gated
from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

from evalflows import approve, run
from evalflows.cli.main import cli
from evalflows.pytest_plugin import EvidenceWarning, assert_at_least, assert_at_most, assert_no_regression, message
from evalflows.specs import ExperimentSpec, InputError
from evalflows.store import connect

N = 80
OLD = drawn(N, 0.9)
NEW = fallen(OLD, 0.3)  # right in 48 of 80
ANOTHER_JUDGE = {"use": "exact_match", "name": "contains"}
FELL = [f"q{place:04}" for place in np.flatnonzero(OLD & ~NEW)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, prefect_environment: dict[str, str]) -> Iterator[Path]:
    """A store with the experiments app-old, app-again (the same answers), app-new, and few of 8 examples."""
    folder = tmp_path_factory.mktemp("asserts")
    server = {PREFECT_API_URL: prefect_environment["PREFECT_API_URL"], PREFECT_LOGGING_TO_API_ENABLED: False}
    whole = gated(folder, [], old=OLD, again=OLD, new=NEW)
    judges = ["exact_match", "odd_evaluators:half_fails", "contains"]
    few = gated(folder, [], few=OLD[:8]) | {"name": "few", "evaluators": ["exact_match", ANOTHER_JUDGE]}
    with pytest.MonkeyPatch.context() as patch, temporary_settings(server):
        patch.setenv("EVALFLOWS_STORE", str(folder / "store"))
        for fields in (whole | {"evaluators": judges}, few):
            run(ExperimentSpec.model_validate(fields))
        yield folder / "store"


@pytest.fixture(autouse=True)
def there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALFLOWS_STORE", str(root))


def told(assertion: Callable[..., Any], *arguments: Any, **options: Any) -> list[str]:
    """The lines of the error that an assertion raises, without what chance there is in ids."""
    with pytest.raises(AssertionError) as caught:
        assertion(*arguments, **options)
    return re.sub(r"exp-\w+", "ID", str(caught.value)).splitlines()


def test_a_planted_regression_is_told_with_its_numbers_and_the_worst_items() -> None:
    lines = told(assert_no_regression, "app-new", "app-old", "exact_match")
    assert lines[:2] == [
        "FAIL: exact_match is worse by more than 0.05: -0.30 [-0.41, -0.19], 80 pairs",
        "  app-new (ID) against app-old (ID), at a confidence level of 0.95",
    ]
    assert lines[2:7] == [
        "  the worst items by exact_match:",
        f"    {FELL[0]}: was 1, now 0  Question {int(FELL[0][1:])}?",
        "        answer: no",
        "        baseline: yes",
        '        comment: got "no", wanted "yes"',
    ]
    assert [line.split(":")[0].strip() for line in lines if ": was " in line] == FELL[:5]


@pytest.mark.slow
def test_a_failed_assertion_is_stored_as_a_decision() -> None:
    with pytest.raises(AssertionError):
        assert_no_regression("app-new", "app-old", "exact_match", margin=0.04)
    done = CliRunner().invoke(cli, ["explain", "assert_no_regression exact_match 0.04"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("FAIL  gate assert_no_regression exact_match 0.04: app-new against app-old\n")
    assert "exact_match is worse by more than 0.04: -0.30" in done.stdout
    shown = CliRunner().invoke(cli, ["show", "app"]).stdout
    assert "assert_no_regression exact_match 0.04: app-new against app-old" in shown


def test_of_eight_items_nothing_is_said() -> None:
    first, sides, *notes = told(assert_no_regression, "few", "app-old", "exact_match")
    assert "8 pairs; wanted at least 20 to decide" in first
    assert sides == "  few (ID) against app-old (ID), at a confidence level of 0.95"
    assert any("only the 8 shared ones" in note for note in notes)
    few = {"margin": 0.5, "min_examples": 8}
    _, *notes = told(assert_no_regression, "few", "app-old", "exact_match", **few)
    assert any("72 of the baseline's 80 examples count as missing" in note for note in notes)
    assert not any("no values are missing" in note for note in notes)
    assert assert_no_regression("few", "app-old", "exact_match", **few, only_shared=True).conclusion == "PASS"


def test_where_half_of_the_judgements_failed_it_says_how_many_and_shows_them_first() -> None:
    lines = told(assert_no_regression, "app-again", "app-old", "half_fails", margin=0.2)
    assert lines[0].startswith("NOT ENOUGH EVIDENCE: half_fails may be worse by more than 0.2: +0.000 ")
    assert "40 pairs with a missing value could flip this" in lines[0]
    assert "  40 of 80 values of half_fails are missing in app-again" in lines
    assert [line.split("  ")[2] for line in lines if ": was " in line] == [
        f"q{place:04}: was missing, now missing" for place in (1, 3, 5, 7, 9)
    ]
    assert lines[-1].startswith("        error: RuntimeError: cannot judge this one (")


@pytest.mark.slow
def test_an_open_end_may_be_a_warning_but_a_failure_stays_one() -> None:
    with pytest.warns(EvidenceWarning, match="^NOT ENOUGH EVIDENCE: half_fails may") as caught:
        decision = assert_no_regression("app-again", "app-old", "half_fails", allow_open=True)
    assert decision.conclusion == "NOT ENOUGH EVIDENCE"
    assert [Path(one.filename).name for one in caught] == ["test_asserts.py"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert assert_no_regression("app-again", "app-old", "exact_match", allow_open=True).conclusion == "PASS"
    assert told(assert_no_regression, "app-new", "app-old", "exact_match", allow_open=True)[0].startswith("FAIL: ")


def test_the_margin_and_the_confidence_decide() -> None:
    lines = told(assert_no_regression, "app-again", "app-old", "exact_match", margin=0.03)
    assert lines[0].startswith("NOT ENOUGH EVIDENCE: exact_match may be worse by more than 0.03: ")
    assert lines[-1] == "  no values are missing: more examples or a less strict bound would decide"
    assert assert_no_regression("app-again", "app-old", "exact_match", 0.03, confidence=0.5).confidence_level == 0.5


def test_another_version_of_the_judge_is_told_and_more_examples_are_not_asked_for() -> None:
    lines = told(assert_no_regression, "few", "app-old", "contains")
    assert lines[0].startswith("NOT ENOUGH EVIDENCE: contains: refused: contains was scored by a different version")
    assert not any("more examples" in line for line in lines)


def test_an_approved_baseline_is_named_so() -> None:
    approve("app-old", "production", by="a test")
    lines = told(assert_no_regression, "app-new", "approved:production", "exact_match")
    assert lines[1] == "  app-new (ID) against app-old (ID), at a confidence level of 0.95"


@pytest.mark.slow
def test_the_interval_or_the_mean_must_reach_a_value() -> None:
    assert assert_at_least("exact_match", 0.45, experiment="app-new").conclusion == "PASS"
    assert assert_at_least("exact_match", 0.6, experiment="app-new", sure=False).conclusion == "PASS"
    open_ = told(assert_at_least, "exact_match", 0.6, experiment="app-new")
    assert open_[0] == "NOT ENOUGH EVIDENCE: exact_match may not reach 0.6: 0.60 [0.48, 0.71] (exact), 80 examples"
    assert told(assert_at_least, "exact_match", 0.61, experiment="app-new", sure=False)[0].startswith("FAIL: ")
    lines = told(assert_at_least, "exact_match", 0.9, experiment="app-new")
    assert lines[0] == "FAIL: exact_match does not reach 0.9 at 95% confidence: 0.60 [0.48, 0.71] (exact), 80 examples"
    assert [line for line in lines if "answer" in line] == ["        answer: no"] * 5
    assert assert_at_most("answer_length", 4, experiment="app-new").conclusion == "PASS"
    lines = told(assert_at_most, "answer_length", 2, experiment="app-new")
    assert lines[0].startswith("FAIL: answer_length ")
    assert [line for line in lines if "answer:" in line] == ["        answer: yes"] * 5


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: assert_no_regression("app-new", "app-old", "exact_mach"),
        r"metric: got 'exact_mach', wanted one of answer_length, contains",
    ),
    (lambda: assert_no_regression("nope", "app-old", "exact_match"), r"experiment 'nope': not in "),
    (lambda: assert_no_regression("app-new", "approved:x", "exact_match"), r"baseline 'x': not approved, wanted "),
    (lambda: assert_no_regression("app-new", "app-old", "exact_match", 0), r"exact_match: .* margin above 0"),
    (lambda: assert_no_regression("app-new", "app-old", "exact_match", confidence=95), r"confidence: got 95, wanted"),
    (
        lambda: assert_at_least("answer_length", 3, experiment="app-new"),
        r"answer_length: lower is better, .* assert_at_most$",
    ),
    (lambda: assert_at_most("exact_match", 3, experiment="app-new"), r"exact_match: .* wanted assert_at_least$"),
    (lambda: assert_at_least("exact_match", 1), r"exact_match: experiment: got none run by "),
]


def test_a_mistake_is_told_in_a_line_and_not_stored(root: Path) -> None:
    def stored() -> int:
        with connect(root) as catalog:
            return int(catalog.sql("select count(*) from decisions").fetchall()[0][0])

    before = stored()
    for made, said in MISTAKES:
        with pytest.raises(InputError, match=f"^{said}") as caught:
            made()
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is None
    assert stored() == before


def test_control_characters_of_answers_are_shown_as_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    worst_items = message.worst_items

    def hostile(*arguments: Any, **options: Any) -> list[message.WorstItem]:
        items = worst_items(*arguments, **options)
        return [replace(item, example_id="a\nPASSED", comment="\x1b[2J\x9b32mPASS") for item in items]

    monkeypatch.setattr(message, "worst_items", hostile)
    lines = told(assert_no_regression, "app-new", "app-old", "exact_match")
    assert "    a\\nPASSED: was 1, now 0" in lines[3]
    assert "comment: \\x1b[2J\\x9b32mPASS" in "\n".join(lines)
    with pytest.raises(InputError, match=r"no\\x1b\[2J"):
        assert_at_least("exact_match", 0.5, experiment="no\x1b[2J")
