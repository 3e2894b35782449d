"""Whole runs on recorded answers: how often the table, a gate, the diff and a comparison find a difference.

Run from the repository's root: `python -m benchmarks.recorded [RUNS] [FIRST_SEED]`; 400 take about an hour. In each
run two systems have answered 80 examples: `right` is yes or no, with 70 % of yes, and `grade` is from 1 to 5; a
pairwise evaluator prefers one answer of each pair. The systems are identical, or the candidate is planted as better or
worse.
Everything is the product's: spec, flow, store, verdicts, decisions; only Prefect is left out. Verdicts are those
shown, after adjustment. Among identical systems, 5 % of the families of verdicts may have one, and 2.5 % of the rules
may be decided: superiority met, or non-inferiority broken.
"""

import os
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from plain_flows import plain_flows

from benchmarks.arguments import new_parser
from evalflows.flows.run_experiment import run_experiment
from evalflows.reports.diff import diff_of
from evalflows.specs.experiment import ExperimentSpec
from evalflows.stats.proportions import wilson_interval
from evalflows.store.store import Store

N = 80
WORLDS = {"identical": 0.0, "candidate better": 0.2, "candidate worse": -0.2}
"""The candidate's share of yes, mean grade over 4, and share of pairs won (twice), minus those of the baseline."""
SMALLEST = {"candidate worse": WORLDS["candidate worse"]}


def right(outputs: dict[str, Any]) -> bool:
    return bool(outputs["right"])


def grade(outputs: dict[str, Any]) -> float:
    return float(outputs["grade"])


def preferred(outputs: list[dict[str, Any]]) -> list[float]:
    """Prefer the answer with more strength."""
    first, second = (float(one["strength"]) for one in outputs)
    return [1.0, 0.0] if first > second else [0.0, 1.0]


def spec_of(rng: np.random.Generator, effect: float) -> ExperimentSpec:
    """Return the spec of a run, with the recorded answers in the metadata of its examples."""
    hard = rng.normal(size=N)  # what both sides have in common

    def answers(more: float) -> list[dict[str, Any]]:
        grades = np.clip(np.round(3 + 0.7 * hard + 0.7 * rng.normal(size=N) + 4 * more), 1, 5)
        yes = rng.random(N) < np.clip(0.7 + 0.15 * np.sign(hard) + more, 0, 1)
        strong = rng.normal(size=N) + 1.8 * more
        pairs = zip(yes, grades, strong, strict=True)
        return [{"right": bool(a), "grade": float(b), "strength": float(c)} for a, b, c in pairs]

    both = zip(answers(0.0), answers(effect), strict=True)
    rows = [
        {"id": f"e{i}", "inputs": {"question": f"q{i}"}, "metadata": {"old": old, "new": new}}
        for i, (old, new) in enumerate(both)
    ]
    gates = [
        {"name": "better", "superiority": {"right": 0, "grade": 0}},
        {"name": "no worse", "non_inferiority": {"right": 0.05, "grade": 0.2}},
    ]
    return ExperimentSpec.model_validate(
        {
            "name": "recorded",
            "dataset": {"rows": rows},
            "targets": [{"kind": "recorded", "name": name, "column": name} for name in ("old", "new")],
            "evaluators": [{"use": f"benchmarks.recorded:{name}"} for name in ("right", "grade")],
            "metrics": {"right": {"range": [0, 1]}, "grade": {"range": [1, 5]}},
            "gates": gates,
            "check_results": False,
            "compare": {"evaluators": [{"use": "benchmarks.recorded:preferred"}]},
        }
    )


VERDICTS = """
select distinct conclusion from source.verdicts
where candidate_experiment_id = $1 and decision_id is null and (comparison_id is not null) = $2
  and conclusion in ('better', 'worse') and metric in ('right', 'grade', 'preferred')
"""
DECISIONS = "select gate, conclusion from source.decisions"


def found(seed: int, effect: float) -> set[str]:
    """Run once, and return what was concluded, by where it is shown."""
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as folder, redirect_stderr(StringIO()):
        os.environ |= {"EVALFLOWS_STORE": f"{folder}/store", "EVALFLOWS_SPOOL": f"{folder}/spool"}
        old, new = run_experiment(spec_of(np.random.default_rng([seed, round(100 * (effect + 1))]), effect))
        store = Store()
        table, pairs = (store.query(VERDICTS, [new, of_pairs]) for of_pairs in (False, True))
        results = diff_of(store, old, [new]).results
        diff = {one.conclusion for one in results if one.metric in ("right", "grade")} & {"better", "worse"}
        decisions = store.query(DECISIONS, [])
    return {
        *(f"table: {conclusion}" for (conclusion,) in table),
        *(f"diff: {conclusion}" for conclusion in diff),
        *(f"gate {gate!r}: {conclusion}" for gate, conclusion in decisions if conclusion in ("PASS", "FAIL")),
        *(f"pairwise: {conclusion}" for (conclusion,) in pairs),
    }


def parse_arguments() -> Namespace:
    parser = new_parser("recorded", __doc__)
    parser.add_argument("runs", nargs="?", type=int, default=400)
    parser.add_argument("first_seed", nargs="?", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    runs, worlds = (1, SMALLEST) if arguments.smallest else (arguments.runs, WORLDS)
    with plain_flows():
        for world, effect in sorted(worlds.items(), key=lambda item: item[1] == 0.0):
            n = runs if effect == 0.0 else max(1, runs // 10)
            counts = Counter[str]()
            for done in range(1, n + 1):
                counts.update(found(arguments.first_seed + done, effect))
                if done % 40 == 0 or done == n:
                    for what, count in sorted(counts.items()):
                        low, high = wilson_interval(count, done, confidence_level=0.95)
                        print(f"{world}: {what} in {count} of {done}: {count / done:.3f} [{low:.3f}, {high:.3f}]")
                    print(flush=True)


if __name__ == "__main__":
    main()
