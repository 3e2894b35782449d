"""Who ships what must not be shipped: planted worlds through us, statgate, evalproof, evalsig, evalgate and evalci.

Run from the repository's root: `python -m benchmarks.deciders --peers PYTHON`, with the Python of an environment that
has benchmarks/deciders.txt; a tool that is not there is left out, and without `--peers` only ours is measured. Every
world has a margin of 0.05 and two candidates. The one that is worse by exactly the margin must not pass: to pass it in
more than 2.5 % is an error. The other one is as good as the baseline in every second sample, and better by the margin
in the others, and must not be blocked. Printed are wrong passes, wrong blocks and decisions on the good one, each with
its exact 95 % interval, and milliseconds of processor time for a decision. How each tool is asked, its function in
benchmarks/peer_programs/with_deciders.py says.
"""

import csv
import json
import math
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from subprocess import PIPE, Popen
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from benchmarks.arguments import new_parser
from evalflows.analysis.pairing import paired_metric
from evalflows.analysis.rule_estimates import DifferenceEstimate
from evalflows.analysis.rules import Rule, outcomes, replicated_rule
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_names import MIN_EXAMPLES
from evalflows.stats.arrays import FloatArray
from evalflows.stats.proportions import clopper_pearson_interval
from evalflows.store.queries.values import MetricValues

PROGRAM = Path(__file__).parent / "peer_programs" / "with_deciders.py"
PEERS = ("statgate", "evalproof", "evalsig", "evalsig-gate", "evalgate-cli", "evalci")
OURS = "evalflows"
MARGIN, CLUSTER_SIZE, REPETITIONS = 0.05, 5, 3
SIZES, SAMPLES, PEER_SAMPLES, RESAMPLES = (30, 100, 300), 800, 250, 2_000
SMALLEST = (30,), 2, 2
"""Sizes, and samples of the worse candidate; of the good one there are half as many."""
FAILED, ICC = 0.03, 0.5
"""The share of the candidate's answers that fail, and the intraclass correlation in clusters."""

Pair = tuple[FloatArray, FloatArray]
"""Scores of baseline and candidate, of shape (n,) or (n, repetitions); NaN is missing."""
Draw = Callable[[np.random.Generator, int, float], Pair]
"""Draws n pairs whose true means differ by a gain of the candidate: -MARGIN, 0 or MARGIN."""


def _yes_no(drawn: FloatArray, gain: float, base: float, differ: float) -> Pair:
    gained, lost = (differ + gain) / 2, (differ - gain) / 2
    baseline = drawn < base
    candidate = (drawn < base - lost) | (~baseline & (drawn < base + gained))
    return baseline.astype(np.float64), candidate.astype(np.float64)


def yes_no(rng: np.random.Generator, n: int, gain: float) -> Pair:
    """85 % yes, 10 % of the pairs differ."""
    return _yes_no(rng.random(n), gain, 0.85, 0.1)


def equal_answers(rng: np.random.Generator, n: int, gain: float) -> Pair:
    """90 % yes; the answers are the same, but for the 5 % that are lost or gained."""
    return _yes_no(rng.random(n), gain, 0.9, abs(gain))


def graded(rng: np.random.Generator, n: int, gain: float) -> Pair:
    baseline = rng.uniform(0.3, 0.75, n)
    return baseline, baseline + gain + rng.uniform(-0.15, 0.15, n)


def missing(rng: np.random.Generator, n: int, gain: float) -> Pair:
    """As graded, but 3 % of the candidate's answers fail, and a failed answer is worth 0."""
    baseline, candidate = graded(rng, n, (gain + FAILED * 0.525) / (1 - FAILED))
    return baseline, np.where(rng.random(n) < FAILED, np.nan, candidate)


def clusters(rng: np.random.Generator, n: int, gain: float) -> Pair:
    """As yes/no, but examples copy their cluster's draw with probability sqrt(ICC)."""
    shared = np.repeat(rng.random(n // CLUSTER_SIZE), CLUSTER_SIZE)
    return _yes_no(np.where(rng.random(n) < math.sqrt(ICC), shared, rng.random(n)), gain, 0.85, 0.1)


def ties(rng: np.random.Generator, n: int, gain: float) -> Pair:
    """Grades in steps of a quarter, of which 60 % are the same on both sides."""
    baseline, drawn, up = rng.choice([0.25, 0.5, 0.75], n), rng.random(n), 0.2 + gain * 2
    return baseline, baseline + 0.25 * ((drawn < up) - 1.0 * (drawn > 0.6 + up))


def rare_catastrophes(rng: np.random.Generator, n: int, gain: float) -> Pair:
    """Scores evenly spread over 0.9 to 1; of the side that is worse, 5.3 % are 0 instead."""
    worse, better = rng.uniform(0.9, 1.0, (2, n))
    worse = np.where(rng.random(n) < abs(gain) / 0.95, 0.0, worse)
    return (better, worse) if gain < 0 else (worse, better)


def repetitions(rng: np.random.Generator, n: int, gain: float) -> Pair:
    """Three yes/no repetitions of examples that are hard or easy for both sides; the probability is Beta(2, 1)."""
    easy, factor = rng.beta(2.0, 1.0, (n, 1)), 1 - 1.5 * abs(gain)
    better, worse = (rng.random((n, REPETITIONS)) < easy * by for by in (1.0, factor))
    pair = better.astype(np.float64), worse.astype(np.float64)
    return pair if gain < 0 else (pair[1], pair[0])


class World(NamedTuple):
    """One metric or several; if the candidate is worse, it loses the first metric, and gains the others."""

    name: str
    metrics: Mapping[str, Draw]
    cluster_size: int | None = None


WORLDS = (
    World("yes/no", {"m": yes_no}),
    World("graded", {"m": graded}),
    World("clusters of five", {"m": clusters}, CLUSTER_SIZE),
    World("missing values", {"m": missing}),
    World("ties", {"m": ties}),
    World("rare catastrophes", {"m": rare_catastrophes}),
    World("equal answers", {"m": equal_answers}),
    World("repetitions", {"m": repetitions}),
    World("three metrics", {"accuracy": yes_no, "quality": graded, "format": ties}),
)

Scores = Mapping[str, float | Sequence[float | None] | None]
"""Scores by id; several are repetitions, None is missing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a tool is given."""

    baseline: dict[str, Scores]
    candidate: dict[str, Scores]
    clusters: dict[str, str] | None


def samples_of(world: World, n: int, *, is_worse: bool, count: int) -> Iterator[Sample]:
    """Yield the same samples in every run: of a good candidate, every second one is as good, the others better."""
    ids = [f"q{number:04}" for number in range(n)]
    size = world.cluster_size
    own_clusters = None if size is None else {name: f"c{number // size}" for number, name in enumerate(ids)}
    for number in range(count):
        rng = np.random.default_rng([WORLDS.index(world), n, is_worse, number])
        sides: tuple[dict[str, Scores], dict[str, Scores]] = {}, {}
        for place, (metric, draw) in enumerate(world.metrics.items()):
            gain = MARGIN if place else -MARGIN
            pair = draw(rng, n, gain if is_worse else MARGIN * (number % 2))
            for side, drawn in zip(sides, pair, strict=True):
                side[metric] = dict(zip(ids, np.where(np.isnan(drawn), None, drawn).tolist(), strict=True))
        yield Sample(*sides, own_clusters)


@cache
def _spec(metrics: tuple[str, ...]) -> ExperimentSpec:
    """Return a spec that declares the range of metrics; its dataset and target are not read."""
    return ExperimentSpec.model_validate(
        {
            "name": "deciders",
            "dataset": "none.jsonl",
            "targets": [{"kind": "recorded", "name": "candidate", "path": "none.jsonl"}],
            "metrics": {metric: {"range": [0, 1]} for metric in metrics},
        }
    )


def _values(metric: str, scores: Scores) -> MetricValues:
    rows = [row if isinstance(row, Sequence) else [row] for row in scores.values()]
    runs = np.array(rows, dtype=np.float64)  # None becomes NaN
    lacks = np.isnan(runs).any(axis=1)
    is_binary = runs.shape[1] == 1 and bool(np.isin(runs[~lacks], (0.0, 1.0)).all())
    return MetricValues(
        metric=metric,
        evaluator=metric,
        evaluator_version="1",
        is_yes_no=False,
        is_binary=is_binary,
        values=np.where(lacks, np.nan, runs.mean(axis=1)),
        missing=lacks,
        scored=int((~np.isnan(runs)).sum()),
        n_missing=int(np.isnan(runs).sum()),
        weights=np.ones(len(runs)),
        are_0_or_1=is_binary,
    )


def _decide(
    baseline: Mapping[str, Scores],
    candidate: Mapping[str, Scores],
    *,
    margin: float,
    clusters: Mapping[str, str] | None = None,
) -> str:
    """Return the conclusion of a gate with a non-inferiority rule for each metric, as `evalflows.decide` has it."""
    groups = None if clusters is None else [*clusters.values()]
    spec, tested = _spec(tuple(baseline)), []
    for metric, own in baseline.items():
        paired = paired_metric(_values(metric, candidate[metric]), _values(metric, own), groups, spec)
        rule = Rule(kind="non_inferiority", metric=metric, bound=margin)
        tested.append(replicated_rule(rule, DifferenceEstimate(paired)))
    found = outcomes(tested, confidence_level=spec.confidence_level, min_examples=MIN_EXAMPLES, adjustment="holm")
    said = {outcome.item() for outcome in found}
    return "FAIL" if "broken" in said else "NOT ENOUGH EVIDENCE" if "open" in said else "PASS"


SAID = {"PASS": "pass", "FAIL": "block", "NOT ENOUGH EVIDENCE": "open"}

Decision = tuple[str, float]
"""pass, block or open, and seconds of processor time."""
Decider = Callable[[Sample], Decision]


def ours(sample: Sample) -> Decision:
    began = time.process_time()
    said = _decide(sample.baseline, sample.candidate, margin=MARGIN, clusters=sample.clusters)
    return SAID[said], time.process_time() - began


@contextmanager
def peer(python: str, tool: str, resamples: int) -> Iterator[Decider]:
    """Yield another tool, which decides in a process of its own. Raise RuntimeError with its last line if it ends."""
    command = [python, str(PROGRAM), tool, str(MARGIN), str(resamples)]
    with TemporaryFile("w+") as log, Popen(command, stdin=PIPE, stdout=PIPE, stderr=log, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        answers, questions = process.stdout, process.stdin

        def answer() -> str:
            if line := answers.readline():
                return line
            process.wait()
            log.seek(0)
            raise RuntimeError(f"{tool}: {(log.read().strip() or 'it ended').splitlines()[-1]}")

        def decide(sample: Sample) -> Decision:
            print(json.dumps(_in_lists(sample)), file=questions, flush=True)
            verdict, seconds = answer().split()
            return verdict, float(seconds)

        answer()
        yield decide
        questions.close()


def _in_lists(sample: Sample) -> dict[str, Any]:
    """Return a sample in which each id has a list of scores."""
    sides = {
        side: {
            metric: {name: own if isinstance(own, list) else [own] for name, own in scores.items()}
            for metric, scores in metrics.items()
        }
        for side, metrics in (("baseline", sample.baseline), ("candidate", sample.candidate))
    }
    return {**sides, "clusters": sample.clusters}


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the samples, with the exact interval of the share."""

    count: int
    n: int

    @property
    def percents(self) -> tuple[float, float, float]:
        low, high = clopper_pearson_interval(self.count, self.n, confidence_level=0.95)
        return 100 * self.count / self.n, 100 * low, 100 * high

    def __str__(self) -> str:
        share, low, high = self.percents
        return f"{share:5.1f} % ({low:.1f} to {high:.1f})"


class Row(NamedTuple):
    """What one tool decided in one world."""

    tool: str
    world: str
    n: int
    wrong_passes: Share
    wrong_blocks: Share
    decisions: Share
    ms: float


SHARES = ("wrong_passes", "wrong_blocks", "decisions")


def rows_of(
    deciders: Mapping[str, Decider], worlds: Sequence[World], sizes: Sequence[int], samples: int, peer_samples: int
) -> Iterator[Row]:
    """Yield what each tool decides in each world."""
    for world, n, (tool, decide) in product(worlds, sizes, deciders.items()):
        count = samples if tool == OURS else peer_samples
        worse, good = (
            [decide(sample) for sample in samples_of(world, n, is_worse=is_worse, count=share)]
            for is_worse, share in ((True, count), (False, count // 2))
        )
        said = [verdict for verdict, _ in good]
        yield Row(
            tool,
            world.name,
            n,
            Share([verdict for verdict, _ in worse].count("pass"), len(worse)),
            Share(said.count("block"), len(good)),
            Share(len(good) - said.count("open"), len(good)),
            1000 * fmean(seconds for _, seconds in [*worse, *good]),
        )


def started(stack: ExitStack, python: str | None, resamples: int) -> dict[str, Decider]:
    """Return us, and each tool that is there; say which are not."""
    deciders: dict[str, Decider] = {OURS: ours}
    for tool in PEERS if python else ():
        try:
            deciders[tool] = stack.enter_context(peer(str(python), tool, resamples))
        except (RuntimeError, OSError) as error:
            print(f"left out: {error}")
    return deciders


def write_csv(path: str, rows: Sequence[Row]) -> None:
    """Write every figure with its interval, in percent."""
    names = [name for share in SHARES for name in (share, f"{share}_low", f"{share}_high")]
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["world", "n", "tool", "worse", "good", *names, "ms"])
        for row in rows:
            percents = [f"{figure:.1f}" for share in SHARES for figure in getattr(row, share).percents]
            counts = row.wrong_passes.n, row.decisions.n
            table.writerow([row.world, row.n, row.tool, *counts, *percents, f"{row.ms:.1f}"])


def parse_arguments() -> Namespace:
    parser = new_parser("deciders", __doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="the Python of an environment that has the others")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of the worse candidate, for us")
    parser.add_argument("--peer-samples", type=int, default=PEER_SAMPLES, help="of the worse candidate, for the others")
    parser.add_argument("--resamples", type=int, default=RESAMPLES, help="of the others' bootstraps; 0: their defaults")
    names = [world.name for world in WORLDS]
    parser.add_argument("--world", action="append", choices=names, help="only this world; may be given again")
    parser.add_argument("--csv", metavar="FILE", help="also write all figures")
    return parser.parse_args()


def main() -> None:
    given = parse_arguments()
    sizes, samples, peer_samples = SMALLEST if given.smallest else (SIZES, given.samples, given.peer_samples)
    worlds = [world for world in WORLDS if not given.world or world.name in given.world]
    rows = []
    with ExitStack() as stack:
        deciders = started(stack, given.peers, given.resamples)
        print(f"{'world':<18}{'n':>4}  {'tool':<13}{'wrong passes':<25}{'wrong blocks':<25}{'decisions':<26}ms")
        for row in rows_of(deciders, worlds, sizes, samples, peer_samples):
            rows.append(row)
            shares = "".join(f"{getattr(row, share)!s:<25}" for share in SHARES)
            print(f"{row.world:<18}{row.n:>4}  {row.tool:<13}{shares}{row.ms:6.1f}", flush=True)
    if given.csv:
        write_csv(given.csv, rows)


if __name__ == "__main__":
    main()
