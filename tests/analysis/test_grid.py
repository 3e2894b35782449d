"""The grid of a matrix: main effects by an independent computation, and the best cell and both in every door."""

import json
from collections.abc import Iterable, Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from page_client import page_client
from past import Past, passes
from scipy.stats import t as student

from evalflows.analysis.differences import MetricReader, estimate_rows
from evalflows.analysis.grid import MainEffect, _effects
from evalflows.api.results import ExperimentResult
from evalflows.cli.main import cli
from evalflows.cli.schema import schema_of
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.queries.values import MetricValues

N = 60

SPEC = ExperimentSpec.model_validate(
    {"name": "e", "dataset": {"path": "d.jsonl"}, "targets": [{"kind": "python", "function": "app:answer"}]}
)


def effects(
    cells: Iterable[tuple[Mapping[str, str], "np.ndarray[Any, Any]"]], factor: str, missing: Any = False
) -> list[MainEffect]:
    """The main effects of a factor; values that are not known are missing, or not applicable."""
    pairs, levels = list[Any](), list[Mapping[str, str]]()
    for level, values in cells:
        of_cell = MetricValues(
            metric="m",
            evaluator="m",
            evaluator_version="1",
            is_yes_no=False,
            is_binary=False,
            values=values,
            missing=np.isnan(values) & missing,
            scored=len(values),
            n_missing=int((np.isnan(values) & missing).sum()),
            weights=np.ones(len(values)),
        )
        no_reason: Any = {"why_refused": lambda _: None, "why_excluded": lambda _: None}
        pairs.append(SimpleNamespace(values={"m": of_cell}, clusters=None, spec=SPEC, **no_reason))
        levels.append(level)
    return [*_effects(pairs, levels, factor, "m", 0)]


def test_a_main_effect_is_the_mean_of_each_examples_contrast_over_the_combinations_that_both_levels_have() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 3, 2, N)) + rng.normal(size=N)
    values += 0.4 * np.arange(3)[None, :, None, None] * np.arange(1, 3)[:, None, None, None]  # other per prompt
    cells = {
        (p, m, s): ({"prompt": "ab"[p], "model": "xyz"[m], "seed": "12"[s]}, values[p, m, s])
        for p, m, s in product(range(2), range(3), range(2))
    }

    def check(effect: MainEffect, candidate: Any, baseline: Any, level: float) -> None:
        contrast = np.mean(candidate, axis=0) - np.mean(baseline, axis=0)
        reach = contrast.std(ddof=1) / np.sqrt(N) * student.ppf((1 + level) / 2, N - 1)
        mean = contrast.mean()
        assert effect.difference == pytest.approx(mean) and effect.n_examples == N
        assert [effect.low, effect.high] == pytest.approx([mean - reach, mean + reach], abs=0.02), "corrected for skew"
        assert effect.confidence_level == 0.95

    y, z = effects(cells.values(), "model")
    assert [(one.level, one.reference, one.n_combinations, one.conclusion) for one in (y, z)] == [
        ("y", "x", 4, "better"),
        ("z", "x", 4, "better"),
    ]
    check(y, values[:, 1].reshape(4, N), values[:, 0].reshape(4, N), 0.975)
    check(z, values[:, 2].reshape(4, N), values[:, 0].reshape(4, N), 0.975)
    left = {place: cell for place, cell in cells.items() if place[:2] != (1, 1)}  # without prompt b of model y
    y, z = effects(left.values(), "model")
    assert (y.n_combinations, z.n_combinations) == (2, 4)
    check(y, values[0, 1], values[0, 0], 0.975)
    (prompt,) = effects(left.values(), "prompt")
    check(prompt, values[1, [0, 2]].reshape(4, N), values[0, [0, 2]].reshape(4, N), 0.95)
    diagonal = [cells[0, 0, 0], cells[1, 1, 0]]
    (never,) = effects(diagonal, "prompt")
    assert (never.difference, never.n_combinations, never.reason_code) == (None, 0, "no_test")
    values[0, 2, 0, :9] = np.nan
    known = effects(cells.values(), "model", missing=True)[1]
    assert (known.n_examples, known.conclusion, known.reason_code) == (
        N - 9,
        "not_enough_evidence",
        "missing_unbounded",
    )


def test_main_effects_hold_their_level_and_their_intervals_cover() -> None:
    rng, n, runs = np.random.default_rng(7), 30, 300

    def found() -> list[MainEffect]:  # `a` has no effect, `b` has one that differs between examples
        easy = rng.normal(size=n)
        cells = [
            ({"a": str(a), "b": str(b)}, easy + rng.normal(size=n) + b * (0.5 + easy))
            for a, b in product(range(3), range(2))
        ]
        return effects(cells, "a")

    every = [found() for _ in range(runs)]
    wrong = np.mean([any(one.conclusion != "not_enough_evidence" for one in some) for some in every])
    missed = np.mean([any(not (one.low or 0) <= 0 <= (one.high or 0) for one in some) for some in every])
    slack = 3 * np.sqrt(0.05 * 0.95 / runs)
    assert 0.005 < wrong <= 0.05 + slack and missed <= 0.05 + slack, (wrong, missed)


def printed(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_every_door_shows_the_grid_of_all_cells_and_of_no_others() -> None:
    past, get = Past(), page_client().get
    matrix = {"prompt": ["a.md", "b.md"], "model": ["x", "y"], "seed": [1, 2], "exclude": {"model": "y", "seed": 2}}
    judges = [{"use": "exact_match", "name": name} for name in ("right", "polite")]
    spec = past.spec(targets=[{"kind": "chat", "connection": "local"}], matrix=matrix, evaluators=judges)
    for number, cell in enumerate(spec.targets):
        rate = {"a": 0.3, "b": 0.9}[cell.factors["prompt"]]
        scores = {"right": passes(rate, N, seed=number), "polite": np.full(N, 1.0)}
        row = past.experiment(scores, spec=spec, target=cell.name, name=f"qa-{cell.name}", run_group="group-1")
        past.store.publish("estimates", row.experiment_id, [*estimate_rows(MetricReader(past.store), row, spec)])
    first = past.rows[0].experiment_id
    brief, whole = printed("show", "qa"), printed("show", "qa", "--all")
    assert "right, seed 1\nprompt \\ model  x " in brief and "right, seed 2\n" in whole
    for said in ("has the highest mean of right", "main effects on right", "corrected for all 6 cells"):
        assert said in " ".join(brief.split()) and said in " ".join(whole.split())
    assert "main effects on polite" in whole and "main effects on polite" not in brief
    assert "main effects" not in printed("show", first)
    found = json.loads(printed("show", "qa", "--format", "json"))
    jsonschema.validate(found, schema_of("show"))
    right, polite = found["grids"]
    assert (right["metric"], polite["metric"]) == ("right", "polite")
    standings = {cell["target"]: cell["standing"] for cell in right["cells"]}
    assert {standing for name, standing in standings.items() if name[0] == "a"} == {"not_best"}
    assert right["best"]["variants"][0]["name"].startswith("qa-b") and "best" in standings.values()
    assert [(one["factor"], one["n_combinations"]) for one in right["effects"]] == [
        ("prompt", 3),
        ("model", 2),
        ("seed", 2),
    ]
    text = printed("report", "qa", "--format", "md", "-o", "-")
    assert "| factor | level |" in text and "**right, seed 2**" in text
    page, of_cell = get("/experiments/group-1").text, get(f"/experiments/{first}").text
    assert ">best</span>" in page and "main effects on right" in page and "all cells" in of_cell
    grid = ExperimentResult(first).grid
    assert grid and grid.metric == "right" and len(ExperimentResult(first).grids) == 2
    query = "select factors ->> 'model' as model, count(*) as n from experiment_overview group by all order by all"
    assert printed("sql", query, "--format", "csv").split() == ["model,n", "x,4", "y,2"]
