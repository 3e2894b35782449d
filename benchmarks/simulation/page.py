"""The page of the full table: docs/simulation.md, which this makes."""

from collections.abc import Iterator, Sequence

from benchmarks.simulation.catalogue import KINDS
from benchmarks.simulation.cells import TOLERANCE
from benchmarks.simulation.table import SUMMARY, Measure, header, in_markdown, not_held, summary

INTRODUCTION = """# Simulation: do the statistics do what they say?

`make simulate` gives the tables of this page: {runs:,} runs a cell for each of the seeds {seeds}, {cells} cells. Each
run draws data from a world whose truth is known and asks what a user would: the interval, the p, the conclusion,
the gate's decision. What is drawn depends on the seed and on the cell's name, not on how many processes there are.

**How to read it.** Shares are in per cent of the runs. *Covers* is how often an interval of 95 % holds the true value;
where there is no interval, it does not. *False positives* is how often p is at most 0.05 where there is no difference,
*power* the same where there is one. *Wanted* is:

- intervals cover in 94 % at least from 100 examples (or clusters, where there are any) on, in 92 % with 30;
- exact tests err in 5.5 % at most, others in 4 to 6 %; looking after every batch errs in 5 % at most;
- Holm calls anything found that is not there in 5.5 % at most;
- a gate passes a candidate that loses all of its margin in 2.5 % at most, and fails one that loses no more than that in
  2.5 % at most;
- prediction-powered intervals cover where the mean of a biased judge does not: in half of the runs at most.

A mean over the seeds that misses by no more than {tolerance:g} of its standard errors (binomial, at the bound) is
*within error*: chance does that with so many runs. Further out it is NOT HELD, and the program ends with 1. Only a test
that errs less than the 4 % is *cautious* instead: nothing false is found by it, but what is there is found less often.

**Worlds.** *Yes/no*, with the share of yes and of pairs that differ. *Normal*: sd 1, of differences too. *Skewed*:
log-normal (log-sd 1) on both sides, clipped to 0 to 10. *Skewed differences*: such a candidate against a normal
baseline of the same mean, so that the differences are skewed even where there is none. *Five points*: grades, most of
them 4 and 5. *3 repetitions averaged*: yes/no of examples that are hard or easy on both sides. *Clusters*: of 10
examples (even), or 1 to 20 (uneven), with a correlation of 0.3 within; of all but normal numbers, members are copies
of one draw of their cluster with probability sqrt(0.3). A true difference is 2.5 standard errors or so where the world
has room for it: what is rare cannot differ by much.

**Methods.** *auto* of pairs is Bonett-Price and Tango, joined, with the exact McNemar test for yes/no, else Student's t
corrected for skew; with clusters the same t, cluster-robust, for yes/no after two clusters are added instead of the
correction. Exact is McNemar.
"""

TITLES = ("What is not held, and why", "What is cautious")

WHY = {
    "paired": """*Skewed differences of 30*: what is seen of a tail is corrected for. But in many a sample of 30 next to
  nothing is from the tail, and what is not seen cannot be corrected for.""",
    "gate": """*A guard on skewed numbers*: the tail is on the side of the loss, so that a sample with little of it
  hides some of the loss, and passes.""",
}
"""By kind of cells; said as long as one of them is not held."""

CAUTIOUS = """Paired yes/no in clusters: before the interval and p are reckoned, two clusters are added, in which the
sides differ by 0.6 one way and the other. Without these, intervals cover in 78 % where few pairs differ. The price is
power, with 30 clusters above all: a difference must be larger to be found.
"""


def page(estimates: Sequence[Measure], seeds: Sequence[int], runs: int, cells: int) -> Iterator[str]:
    given = ", ".join(map(str, seeds))
    yield INTRODUCTION.format(runs=runs, seeds=given, cells=cells, tolerance=TOLERANCE)
    yield "## In short\n"
    yield from in_markdown([SUMMARY, *summary(estimates)])
    yield ""
    yield from _missed(estimates, seeds)
    for kind in KINDS:
        if rows := [one.row() for one in estimates if one.cell.kind == kind]:
            yield f"\n## {kind.replace('_', '-').capitalize()}: `--only {kind}`\n"
            yield from in_markdown([header(seeds), *rows])


def _missed(estimates: Sequence[Measure], seeds: Sequence[int]) -> Iterator[str]:
    yield f"## {TITLES[0]}\n"
    if missed := not_held(estimates):
        yield from (f"- {text}" for kind, text in WHY.items() if any(one.cell.kind == kind for one in missed))
        yield ""
        yield from in_markdown([header(seeds), *(one.row() for one in missed)])
    else:
        yield "All bounds are held."
    if cautious := [one for one in estimates if one.held == "cautious"]:
        yield f"\n## {TITLES[1]}\n\n{CAUTIOUS}"
        yield from in_markdown([header(seeds), *(one.row() for one in cautious)])
