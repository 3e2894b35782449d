"""Write docs/simulation.md, the page with the full tables."""

from collections.abc import Iterator, Sequence

from benchmarks.simulation.catalogue import KINDS
from benchmarks.simulation.cells import TOLERANCE
from benchmarks.simulation.table import SUMMARY, Measure, header, in_markdown, not_held, summary

INTRODUCTION = """# Simulation: coverage and error rates

`make simulate` computes the tables of this page: {cells} cells, each with {runs:,} runs for each of the seeds {seeds}.
Each run draws data from a world with known truth and calls what a user would call: for the interval, the p-value, the
conclusion, or the gate's decision. The draws depend on the seed and the cell's name, not on the number of processes.

**How to read it.** Shares are in per cent of the runs. *Coverage* is how often the 95 % interval contains the true
value; a missing interval counts as a miss. *False positives* is how often p is at most 0.05 without a true difference,
*power* how often with one. The *targets* are:

- intervals cover in at least 94 % with 100 or more examples (or clusters, if there are any), in at least 92 % with 30;
- for yes/no values in clusters of 1 to 500 (kind *clusters*), in at least 94 % with 30 or more clusters, in at least
  92 % with fewer, and the intervals are at most 1.15 times as wide as the narrower of two others that covers as well:
  CR2 with Satterthwaite's degrees of freedom (Bell & McCaffrey 2002), and the percentiles of a cluster bootstrap. As
  well means in at least 94.5 %, or at most half a point less than ours;
- exact tests have at most 5.5 % false positives, other tests 4 to 6 %, and repeated analyses after every batch at most
  5 % in total;
- Holm's family-wise error rate is at most 5.5 %;
- a gate passes a candidate whose loss equals the margin in at most 2.5 %, and fails a candidate whose loss is not above
  the margin in at most 2.5 %;
- prediction-powered intervals cover where the mean of a biased judge does not, at most in half of the runs;
- intervals of ratings, and of differences of two ratings, cover in at least 94 % with 100 or more votes expected, in
  at least 92 % with fewer, and at most 2.5 % of differences are significant in the wrong direction;
- rates at equal length are biased by at most 2 points towards the longer answer; with 20 systems their mean absolute
  error is above that of the plain rate by at most 0.5 points without a preference for length, and below it with one
  of 1;
- a watch rule raises at most one false alarm in 30 quiet days, and the change detector finds a fall of 8 points in its
  first full daily window in at least 95 %.

A mean over the seeds that misses its target by at most {tolerance:g} of its standard errors (binomial, at the bound) is
*within error*: chance explains it. If it is further off, it is NOT HELD, and the program exits with 1. A test with less
than 4 % false positives is only *cautious*: it is safe, but has less power.

**Worlds.** *Yes/no*, with the share of yes and of pairs that differ. *Normal*: sd 1, also of the differences. *Skewed*:
log-normal (log-sd 1) on both sides, clipped to 0 to 10. *Skewed differences*: a skewed candidate against a normal
baseline with the same mean, so the differences are skewed even without a true difference. *Five points*: grades, mostly
4 and 5. *3 repetitions averaged*: yes/no, with examples that are hard or easy for both sides. *Clusters* have 10
examples each (even) or 1 to 20 (uneven), and an intraclass correlation of 0.3; except for normal values, members copy a
draw of their cluster with probability sqrt(0.3). In the kind *clusters*, one in eight runs is made: sizes are even, or
geometric and at most 500, and within a cluster the shares are Dirichlet distributed (*beta-binomial*), or members copy
a draw of their cluster with probability sqrt(correlation) (*copied*). Worlds with fewer than 24 effective rare values
have no targets but that of the test: the number of rare values (pairs that differ, or the rarer of yes and no) over the
design effect. True differences are about 2.5 standard errors, or less if the world
does not allow it: rare differences cannot be large.

**Tournaments**, as many as give one rating per run: 20 entries with strengths evenly spaced over -1.5 to 1.5 in
log-odds, of whose pairs 60 % met, so many times each, in random order. *Three newcomers* have 6 votes each. *Position
bias*: the first position adds 0.5. *Graded points* are beta distributed, with the mean and a third of the variance of a
win. *Prompts of 28 votes* are clusters that share half of the variance. The pairs of 2 and 4 entries all met. The
*slope* is that of the estimated on the true ratings: above 1, maximum likelihood overshoots.

**Length control**, as many comparisons as give one rate per run: systems with qualities of sd 0.8 in log-odds answer
the same examples, with answers of sd 0.7, and all are compared with the first (or *every pair*). Lengths are
log-normal, with sd 0.4 between systems and 0.6 within. The judge's *preference* is that many log-odds times tanh of the
difference in length in standard deviations (or of the log *ratio*). The true rate is that of the same judge without it.
*Longer answers are better*: quality and length of a system's answers correlate by 0.5, which the method assumes they do
not.

**Watch rules** (kind *monitoring*), one in 20 runs made, of hourly windows one in 200: 14 days to learn from, then 30
that are watched, with 3,300 traces a day. An incident counts once. A threshold at the true mean, or a failure share at
the true share, is the worst case. The *rolling z-test* compares each window with the mean of the seven days before, at
1.96 standard errors; windows in a row count once. Delays count from the fall to the end of the window that alarms.

**Methods.** *Automatic*, for pairs: for yes/no, the union of the Bonett-Price and Tango intervals with the exact
McNemar test; otherwise Student's t corrected for skew. With clusters: cluster-robust t, corrected for skew, or for
yes/no the union of the Bonett-Price and Tango intervals for effective counts, with the larger p-value of both. *Share
of yes* and *cluster-robust wilson*: Wilson's interval for the effective number. Only McNemar's test is exact.
"""

TITLES = ("Targets not held, and why", "Cautious tests")

WHY = {
    "paired": """*Skewed differences with 30 pairs*: the correction uses the skewness of the sample. Many samples of 30
  contain almost nothing of the tail, so there is nothing to correct.""",
    "clusters": """*Copied draws of which few are rare*: of 48 clusters with 95 % of yes, two or three copied a no,
  and in one of twelve samples none; of 10 clusters with 90 %, none in one of three. No interval covers there that
  estimates the variance between the clusters: compare the coverage of CR2 and of the bootstrap.""",
    "gate": """*A non-inferiority rule on skewed values*: the tail is on the side of the loss. A sample with little of
  the tail underestimates the loss, and passes. A larger correction of higher order, and a bootstrap of t, do not hold
  2.5 % either (4.1 % and 7.4 % with 30 pairs). A rule that is met says so itself: with fewer than 300 pairs of values
  whose skewness is at least 1, its text ends with a warning. It does in 99 % of the runs that pass here.""",
}
"""By kind of cells; shown while a target of that kind is not held."""

CAUTIOUS = """Paired yes/no in clusters, of which few differ: the two added pairs weigh more while the design effect is
uncertain, and a few differing pairs, or few clusters with them, cannot be significant in 5 % of the samples by chance.
Without the added pairs, intervals cover in 78 % if few pairs differ and nearly all are losses. The price is power: a
difference must be larger to be significant.
"""


def page(estimates: Sequence[Measure], seeds: Sequence[int], runs: int, cells: int) -> Iterator[str]:
    seed_list = ", ".join(map(str, seeds))
    yield INTRODUCTION.format(runs=runs, seeds=seed_list, cells=cells, tolerance=TOLERANCE)
    yield "## Summary\n"
    yield from in_markdown([SUMMARY, *summary(estimates)])
    yield ""
    yield from _missed(estimates, seeds)
    for kind in KINDS:
        if rows := [measure.row() for measure in estimates if measure.cell.kind == kind]:
            yield f"\n## {kind.replace('_', '-').capitalize()}: `--only {kind}`\n"
            yield from in_markdown([header(seeds), *rows])


def _missed(estimates: Sequence[Measure], seeds: Sequence[int]) -> Iterator[str]:
    yield f"## {TITLES[0]}\n"
    if missed := not_held(estimates):
        yield from (f"- {text}" for kind, text in WHY.items() if any(measure.cell.kind == kind for measure in missed))
        yield ""
        yield from in_markdown([header(seeds), *(measure.row() for measure in missed)])
    else:
        yield "All targets are held."
    if cautious := [measure for measure in estimates if measure.held == "cautious"]:
        yield f"\n## {TITLES[1]}\n\n{CAUTIOUS}"
        yield from in_markdown([header(seeds), *(measure.row() for measure in cautious)])
