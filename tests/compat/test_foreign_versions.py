"""Other projects' evaluators in a process of their own: versions that stay, nothing imported unasked, nothing sent."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from endpoint import Endpoint, serving
from foreign_evaluators import no_network, verdict

from evalflows.engine.spec_evaluators import bind_evaluator, evaluator_version, prepare_evaluator, reference_to
from evalflows.evaluators.score import normalise
from evalflows.evaluators.views import ExampleView, RunView, offer_run
from evalflows.specs import InputError
from evalflows.specs.evaluator import EvaluatorSpec

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("autoevals", "openevals", "langsmith", "langfuse", "pydantic_evals")

VERSIONS = """
import json, openai
import autoevals, openevals
from langsmith.evaluation import StringEvaluator
from pydantic_evals.evaluators import Contains, LLMJudge
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.engine.spec_evaluators import evaluator_version, prepare_evaluator, reference_to

def grade(asked, answer, reference): return {"score": 1}

client = openai.OpenAI(api_key="k", base_url="http://127.0.0.1:1/v1")
found = [
    autoevals.Levenshtein(), autoevals.JSONDiff(string_scorer=autoevals.ExactMatch()),
    autoevals.Factuality(client=client, model="m"), autoevals.EmbeddingSimilarity(client=client),
    openevals.exact_match, openevals.create_llm_as_judge(prompt="{outputs}", judge=client, model="m"),
    openevals.create_trajectory_match_evaluator(trajectory_match_mode="subset"),
    StringEvaluator(evaluation_name="s", grading_function=grade), Contains({"a": {1, 2}}), LLMJudge("r", "openai:m"),
]
specs = [EvaluatorSpec(use=reference_to(one)) for one in found]
print(json.dumps([evaluator_version(prepare_evaluator(spec), {}) for spec in specs]))
"""

UNASKED = """
import json, sys
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.engine.spec_evaluators import bind_evaluator
bind_evaluator(EvaluatorSpec(use="exact_match"))
bind_evaluator(EvaluatorSpec(use="judges:upper", args={"question": "q"}))
print(json.dumps([name for name in %r if name in sys.modules]))
"""


def run(program: str, **environment: str) -> list[str]:
    """What a program says, in a process of its own."""
    unset = {"LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING_V2"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said: list[str] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.fixture(autouse=True)
def installed() -> None:
    for package in PACKAGES:
        if find_spec(package) is None:
            pytest.skip(f"{package} comes with the extra `others`")


@pytest.mark.slow
def test_a_version_is_the_same_in_every_process_and_another_for_each_evaluator() -> None:
    first, second = (run(VERSIONS, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert first == second
    assert len({*first}) == len(first) == 10


@pytest.mark.slow
def test_nothing_of_theirs_is_imported_for_evaluators_of_ours() -> None:
    assert run(UNASKED % (PACKAGES,)) == []


OBJECTS = """
from autoevals import Levenshtein
from openevals import create_trajectory_match_evaluator
from langsmith.evaluation import StringEvaluator, run_evaluator
from pydantic_evals.evaluators import Contains

scorer, contains = Levenshtein(), Contains("Par")
trajectory = create_trajectory_match_evaluator()
graded = StringEvaluator(evaluation_name="graded", grading_function=lambda q, a, wanted: {"score": a == wanted})

@run_evaluator
def same(run, example):
    return {"key": "same", "score": run.outputs == example.outputs}

nothing = 3
"""


def test_objects_are_named_by_their_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "moved_judges.py").write_text(OBJECTS)
    monkeypatch.syspath_prepend(tmp_path)
    example = ExampleView(id="e", inputs={"input": "q"}, reference_outputs={"output": "Paris"})
    for answer, wanted in (("Paris", 1.0), ("Rome", 0.0)):
        available = offer_run(example, RunView(id="r", inputs=example.inputs, outputs={"output": answer}))
        for name in ("scorer", "contains", "graded", "same"):
            bound = bind_evaluator(EvaluatorSpec(use=f"moved_judges:{name}"))
            (score,) = normalise(bound.call(available), bound.name)
            assert (bound.name, score.value) == (name, wanted), name
            renamed = bind_evaluator(EvaluatorSpec(use=f"moved_judges:{name}", name="mine"))
            assert [one.metric for one in normalise(renamed.call(available), "mine")] == ["mine"]
    with pytest.raises(InputError, match="got int, wanted a callable"):
        bind_evaluator(EvaluatorSpec(use="moved_judges:nothing"))


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_the_programs_that_are_shown_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "guides" / "moving.md").read_text(encoding="utf-8")
    shown = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    with no_network(monkeypatch), serving(Endpoint(answer=verdict)) as endpoint:
        monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-test")
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        for number, program in enumerate(shown):
            exec(compile(program, f"moving.md, block {number}", "exec"), {"__name__": f"moving_{number}"})
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert said == ["[0.8]", "[1.0] [1.0]", "[1.0] [1.0]", "[1.0] [1.0]", "[1.0] [1.0]"]


def test_settings_change_the_versions_of_others_evaluators() -> None:
    import openevals
    from langsmith.evaluation import StringEvaluator
    from pydantic_evals.evaluators import Contains, Equals, LLMJudge

    def graded(asked: str, answer: str, reference: str | None) -> dict[str, float]:
        return {"score": 1}

    def judge(**change: Any) -> Any:
        return openevals.create_llm_as_judge(**{"prompt": "{outputs}?", "model": "openai:a", **change})

    changes = ({}, {"prompt": "{outputs}!"}, {"model": "openai:b"}, {"continuous": True}, {"system": "Strict."})
    found = [
        *(StringEvaluator(evaluation_name=name, grading_function=graded) for name in ("a", "b")),
        *(Equals(1), Equals("1"), Contains("1")),
        *(LLMJudge("a", "openai:m"), LLMJudge("b", "openai:m"), LLMJudge("a", "openai:n")),
        *(judge(**change) for change in changes),
    ]
    versions = {evaluator_version(prepare_evaluator(EvaluatorSpec(use=reference_to(one))), {}) for one in found}
    assert len(versions) == len(found)
