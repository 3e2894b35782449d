"""10,000 resamples of 100,000 paired differences, against a plain numpy loop.

Run from the repository's root: `python -m benchmarks.resamples`. The loop draws places in chunks of ten resamples,
about the size at which it is quickest, and takes the mean of each row. Ours is `stats.resampling.bootstrap_means`:
numbers that are all unlike, drawn one by one; then yes and no, where it draws how many there are of each kind. The two
take turns, each time in a process of its own, whose memory is that at its highest, less that before the draws. Wanted:
at most 0.7 of the loop's time, in the median, and no more memory.
"""

import json
import resource
import subprocess
import sys
import time
from statistics import median

import numpy as np

from stats.arrays import FloatArray

N, RESAMPLES, PAIRS, CHUNK, WANTED = 100_000, 10_000, 3, 10, 0.7


def differences(kind: str) -> FloatArray:
    rng = np.random.default_rng(7)
    if kind == "yes and no":
        return (rng.random(N) < 0.72).astype(float) - (rng.random(N) < 0.70)
    return rng.beta(4, 2, N) - rng.beta(4, 2.1, N)


def loop(values: FloatArray) -> FloatArray:
    """What a person would write."""
    rng, means = np.random.default_rng(0), np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, CHUNK):
        places = rng.integers(0, values.size, (CHUNK, values.size))
        means[start : start + CHUNK] = values[places].mean(axis=1)
    return means


def ours(values: FloatArray) -> FloatArray:
    from stats.clusters import clustering_of
    from stats.resampling import bootstrap_means, units_of

    units = units_of(values, clustering_of(None, values.size))
    return bootstrap_means(units, resamples=RESAMPLES, seed=0) * units.sign


def highest() -> float:
    """The memory of this process at its highest until now, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(name: str, kind: str) -> None:
    """In a process of its own: what it took, and what was found."""
    import stats.resampling  # noqa: F401  so that both have it loaded

    values = differences(kind)
    before, began = highest(), time.perf_counter()
    means = (loop if name == "loop" else ours)(values)
    took = time.perf_counter() - began
    print(json.dumps([took, highest() - before, float(means.mean()), float(means.std(ddof=1))]))


def measured(name: str, kind: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.resamples", name, kind]
    found: list[float] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return found


def check(kind: str, found: list[float]) -> None:
    """Mean and standard error of the resamples are what they are in the limit, within four errors of their draws."""
    values = differences(kind)
    error = values.std() / N**0.5
    assert abs(found[2] - values.mean()) < 4 * error / RESAMPLES**0.5, found
    assert abs(found[3] / error - 1) < 4 / (2 * RESAMPLES) ** 0.5, found


def compare(kind: str) -> tuple[float, float]:
    """The ratio of times and that of memory, ours to the loop's, in the median."""
    times, memory = [], []
    for pair in range(PAIRS):
        theirs, mine = measured("loop", kind), measured("ours", kind)
        check(kind, theirs)
        check(kind, mine)
        times.append(mine[0] / theirs[0])
        memory.append(mine[1] / theirs[1])
        print(
            f"{kind:>12}  pair {pair + 1}: loop {theirs[0]:6.2f} s {theirs[1]:5.0f} MB   "
            f"ours {mine[0]:6.2f} s {mine[1]:5.0f} MB   ratio {times[-1]:.2f}",
            flush=True,
        )
    return median(times), median(memory)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one(*sys.argv[1:])
        sys.exit(0)
    failed = False
    for kind in ("numbers", "yes and no"):
        ratio, memory = compare(kind)
        ok = ratio <= WANTED and memory <= 1
        failed |= not ok
        verdict = "ok" if ok else f"MORE THAN {WANTED} OR THAN THE LOOP'S MEMORY"
        print(f"{kind:>12}  {RESAMPLES:,} of {N:,}: median ratio {ratio:.2f}, of memory {memory:.2f}  {verdict}")
    sys.exit(failed)
