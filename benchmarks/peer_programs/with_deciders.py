"""Other tools that decide between two result sets: `python with_deciders.py TOOL MARGIN RESAMPLES`.

Prints `ready`, and reads a JSON document a line, {"baseline": {metric: {id: [scores]}}, "candidate": ..., "clusters":
{id: cluster} or null}, in which a missing score is null. Prints a line for each: pass, block or open, and the seconds
that it took. Each tool is called by the function behind its own command, with its defaults besides the margin and, if
it is not 0, RESAMPLES of its bootstrap. If one metric is blocked, so is the candidate; it passes if all metrics do.
"""

import csv
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Scores = Mapping[str, list[float | None]]
Clusters = Mapping[str, str] | None
Decider = Callable[[Scores, Scores, Clusters, float], str]
"""Decides on one metric: baseline, candidate, clusters, margin."""
RESAMPLES = int(sys.argv[3])


def resampled(*names: str) -> dict[str, Any]:
    """Return the setting of a tool that says how often it resamples, unless that is its own number."""
    return dict.fromkeys(names, RESAMPLES) if RESAMPLES else {}


def known(scores: Scores) -> dict[str, list[float]]:
    """Return the ids with all their scores: no tool but evalproof has a place for a missing one."""
    return {name: [score for score in own if score is not None] for name, own in scores.items() if None not in own}


def is_yes_no(*sides: Scores) -> bool:
    """Return whether each id has one score, and it is 0, 1 or missing."""
    return all(len(own) == 1 and own[0] in (0.0, 1.0, None) for side in sides for own in side.values())


def by_interval(low: float, high: float, margin: float) -> str:
    """Return what a reader concludes from a 95 % interval of candidate minus baseline."""
    return "pass" if low > -margin else "block" if high < -margin else "open"


def statgate() -> Decider:
    """`statgate compare --margin MARGIN`; it has no clusters, and averages repetitions."""
    from statgate import GateSettings, evaluate_gate
    from statgate.records import EvalRecord

    def records(scores: Scores) -> list[Any]:
        return [
            EvalRecord(case_id=name, score=score, run_index=number)
            for name, own in known(scores).items()
            for number, score in enumerate(own)
        ]

    def decide(baseline: Scores, candidate: Scores, clusters: Clusters, margin: float) -> str:
        settings = GateSettings(margin=margin, seed=1, **resampled("resamples", "permutations"))
        report = evaluate_gate(records(baseline), records(candidate), settings)
        return {"SHIP": "pass", "BLOCK": "block", "INCONCLUSIVE": "open"}[report.verdict.value]

    return decide


def evalproof() -> Decider:
    """`evalproof compare --gate` with `max_drop: MARGIN`; it has no clusters and no repetitions."""
    from evalproof import CaseResult, GateConfig, Run, RunInfo, Score, SystemOutput, compare_runs
    from evalproof import decide as decide_gate

    texts = ["suite", "system", "dataset_path", "dataset_hash", "started_at", "finished_at", "evalproof_version"]
    info = RunInfo(**dict.fromkeys(texts, "x"), wall_time_s=0.0, seed=0)

    def run(scores: Scores, yes_no: bool) -> Any:
        def score(own: list[float | None]) -> Any:
            numbers = [each for each in own if each is not None]
            value = sum(numbers) / len(numbers) if len(numbers) == len(own) else None
            return Score(value=value, passed=None if value is None or not yes_no else bool(value))

        results = [
            CaseResult(case_id=name, output=SystemOutput(output=""), scores={"m": score(own)})
            for name, own in scores.items()
        ]
        return Run(info=info, results=results)

    def decide(baseline: Scores, candidate: Scores, clusters: Clusters, margin: float) -> str:
        yes_no = is_yes_no(baseline, candidate)
        comparison = compare_runs(run(baseline, yes_no), run(candidate, yes_no), **resampled("n_boot"))
        decision = decide_gate(comparison, GateConfig(metric="m", max_drop=margin))
        return {0: "pass", 4: "open"}.get(decision.exit_code, "block")

    return decide


def _frames() -> Callable[[Scores, Clusters], Any]:
    from evalsig import ItemResult, RunFrame

    def frame(scores: Scores, clusters: Clusters) -> Any:
        items = [
            ItemResult(item_id=name, score=score, cluster_id=None if clusters is None else clusters[name], epoch=epoch)
            for name, own in known(scores).items()
            for epoch, score in enumerate(own)
        ]
        return RunFrame(run_id="r", model_id="m", task_id="t", metric_name="m", items=items)

    return frame


def evalsig_gate() -> Decider:
    """`evalsig gate --min-delta MARGIN`, with `--cluster`: is the candidate better, by at least so much?"""
    from evalsig import gate

    frame = _frames()

    def decide(baseline: Scores, candidate: Scores, clusters: Clusters, margin: float) -> str:
        settings = {"min_delta": margin, "cluster": clusters and "cluster", **resampled("n_resamples")}
        report = gate(frame(baseline, clusters), frame(candidate, clusters), **settings)
        return {"ALLOW": "pass", "REJECT": "block", "INCONCLUSIVE": "open"}[report.verdict.value]

    return decide


def evalsig() -> Decider:
    """`evalsig compare`, with `--cluster`, whose interval is held against the margin; it reads the first epoch."""
    from evalsig import compare

    frame = _frames()

    def decide(baseline: Scores, candidate: Scores, clusters: Clusters, margin: float) -> str:
        settings = {"cluster": clusters and "cluster", **resampled("n_resamples")}
        return by_interval(*compare(frame(baseline, clusters), frame(candidate, clusters), **settings).ci, margin)

    return decide


def evalgate() -> Decider:
    """`evalgate paired` for yes/no, else `evalgate proportions` with the means as accuracies; it has no margin."""
    from evalgate import decide as decide_result
    from evalgate import mcnemar_test, two_proportion_test
    from evalgate.io import as_correct, discordant_counts, read_columns

    def paired(baseline: Scores, candidate: Scores) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                rows = csv.writer(file)
                rows.writerow(["baseline", "candidate"])
                for name, own in baseline.items():
                    rows.writerow(["" if one is None else int(one) for one in (own[0], candidate[name][0])])
            columns = read_columns(path, ["baseline", "candidate"])
        return mcnemar_test(*discordant_counts(*(as_correct(columns[side]) for side in ("baseline", "candidate"))))

    def decide(baseline: Scores, candidate: Scores, clusters: Clusters, margin: float) -> str:
        if is_yes_no(baseline, candidate):
            result = paired(baseline, candidate)
        else:
            sides = [[sum(own) / len(own) for own in known(side).values()] for side in (baseline, candidate)]
            counts = [number for side in sides for number in (round(sum(side)), len(side))]
            result = two_proportion_test(*counts)
        return "block" if decide_result(result).is_regression else "pass"

    return decide


def evalci() -> Decider:
    """`evalci.compare`, or `cluster_ci` of the differences, whose interval is held against the margin."""
    import evalci as library
    import numpy as np

    def decide(baseline: Scores, candidate: Scores, clusters: Clusters, margin: float) -> str:
        sides = [{name: sum(own) / len(own) for name, own in known(side).items()} for side in (candidate, baseline)]
        shared = [name for name in sides[0] if name in sides[1]]
        ours, theirs = (np.array([side[name] for name in shared]) for side in sides)
        settings = {"random_state": 1, **resampled("n_resamples")}
        if clusters is None:
            return by_interval(*library.compare(ours, theirs, **settings).ci, margin)
        return by_interval(*library.cluster_ci(ours - theirs, [clusters[name] for name in shared], **settings), margin)

    return decide


TOOLS: dict[str, Callable[[], Decider]] = {
    "statgate": statgate,
    "evalproof": evalproof,
    "evalsig": evalsig,
    "evalsig-gate": evalsig_gate,
    "evalgate-cli": evalgate,
    "evalci": evalci,
}


def main() -> None:
    decide, margin = TOOLS[sys.argv[1]](), float(sys.argv[2])
    print("ready", flush=True)
    for line in sys.stdin:
        sample = json.loads(line)
        began = time.process_time()
        said = {
            decide(own, sample["candidate"][metric], sample["clusters"], margin)
            for metric, own in sample["baseline"].items()
        }
        verdict = "block" if "block" in said else "open" if "open" in said else "pass"
        print(verdict, time.process_time() - began, flush=True)


main()
