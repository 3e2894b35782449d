"""What docs/reference/agents.md shows, run."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalflows.evaluators import agents

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "reference" / "agents.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.S)


def test_the_figures_beside_the_evaluators_are_what_they_give() -> None:
    example, outputs, _ = (json.loads(block) for block in blocks("json"))
    (shown,) = blocks("yaml")
    figures = [float(re.findall(r"# ([\d.]+)", line)[0]) for line in shown.splitlines()[1:]]
    specs = [{"use": one} if isinstance(one, str) else one for one in yaml.safe_load(shown)["evaluators"]]
    assert len(specs) == len(figures) == 7
    for spec, figure in zip(specs, figures, strict=True):
        got: Any = getattr(agents, spec["use"])(
            example["inputs"], outputs, example["reference_outputs"], **spec.get("args", {})
        )
        assert (got[0] if isinstance(got, list) else got).value == pytest.approx(figure, abs=0.005), spec


def test_the_trials_print_what_is_said_beside_them(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("python")
    exec(compile(program, "docs/reference/agents.md", "exec"), {})
    printed = [float(number) for number in re.findall(r"[\d.]+", capsys.readouterr().out)]
    said = [float(number) for line in re.findall(r"print.*# (.*)", program) for number in line.split(",")]
    assert printed == pytest.approx(said, abs=5e-5)
