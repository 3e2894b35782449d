"""tau-bench's published trials, by the spec of examples/: pass^k as published, with failed trials counted as wrong."""

import gzip
import json
import os
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from catalog_rows import rows

from evalflows import run
from evalflows.specs import load_experiment

ROOT = Path(__file__).parents[2]
PUBLISHED = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", ROOT.parent / "shared" / "data"))
TRIALS = PUBLISHED / "tau_bench" / "gpt-4o-airline_slim.jsonl.gz"
pytestmark = [
    pytest.mark.skipif(not TRIALS.is_file(), reason="tau-bench is not there (EVALFLOWS_PUBLISHED_DATA)"),
    pytest.mark.usefixtures("without_prefect"),
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setenv("EVALFLOWS_PUBLISHED_DATA", str(PUBLISHED))


def pass_hats(metric: str = "success") -> list[str]:
    found = dict(rows("select metric, mean from results where metric like ?", f"{metric} pass^%"))
    return [f"{found[f'{metric} pass^{k}']:.3f}" for k in (1, 2, 3, 4)]


def test_pass_hat_k_is_as_published() -> None:
    run(load_experiment(ROOT / "examples" / "tau_bench.yaml"))
    assert pass_hats() == ["0.420", "0.273", "0.220", "0.200"]  # the project's leaderboard
    assert rows("select count(*), count(distinct repetition) from outputs where status = 'ok'") == [(200, 4)]


def test_a_trial_that_fails_counts_as_wrong_as_the_benchmark_counts_it(tmp_path: Path) -> None:
    with gzip.open(TRIALS, "rt", encoding="utf-8") as file:
        trials = [json.loads(line) for line in file]
    lost = [trial for number, trial in enumerate(trials) if number % 7 == 3]
    for trial in lost:
        trial["error"] = "the user's model timed out"
        del trial["reward"], trial["tool_calls"]
    path = tmp_path / "trials.jsonl"
    path.write_text("\n".join(map(json.dumps, trials)))
    changes = [f"targets.0.path={path}"]
    run(load_experiment(ROOT / "examples" / "tau_bench.yaml", changes))

    solved = Counter(trial["task_id"] for trial in trials if trial.get("reward") == 1)
    drawn = {k: list(combinations(range(4), k)) for k in (1, 2, 3, 4)}
    by_hand = [
        sum(all(place < solved[task] for place in places) for task in range(50) for places in subsets)
        / (50 * len(subsets))
        for subsets in drawn.values()
    ]
    assert pass_hats() == [f"{share:.3f}" for share in by_hand]
    assert by_hand[0] == sum(solved.values()) / 200 < 0.4
    counted = "select metric, scored, missing from metric_summary where metric in ('reward', 'success') order by 1"
    assert rows(counted) == [("reward", 200 - len(lost), len(lost)), ("success", 200, 0)]
