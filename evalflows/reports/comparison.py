"""The report of a comparison: win rates, ratings and judge biases, and its judged pairs, one page at a time."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from evalflows.analysis.figures import calls_text, p_text, percent
from evalflows.reports.names import names_apart, names_apart_in_each
from evalflows.reports.results import conclusion_text
from evalflows.specs.errors import NotFoundError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.queries.progress import spooled_if_unfinished
from evalflows.store.records import ComparisonSetRow
from evalflows.store.sql import ask, ask_records, fields_of, record_of, records_of
from evalflows.store.store import Store

Kind = Literal["left", "right", "tie", "half", "flipped", "missing", "not_applicable", "left_out"]

Side = Literal["left", "right"]

KINDS: tuple[Kind, ...] = ("left", "right", "tie", "half", "flipped", "missing", "not_applicable", "left_out")
"""Outcomes of a pair: which answer won, or why neither did; see docs/guides/pairwise.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What was compared, and its progress."""

    comparison_id: str
    name: str
    state: str
    reason: str | None
    n_experiments: int
    n_shared: int
    n_left_out: int
    n_votes: int | None  # of recorded votes; then the experiments are systems of their file
    planned: int
    judged: int
    missing: int
    decided_without_judge: int
    failed_output_policy: str
    both_orders: bool
    order_rule: str
    randomize_order: bool
    calls: int | None
    calls_cached: int | None
    cost_usd: float | None
    experiments: list[str]  # names
    started_at: datetime
    ended_at: datetime | None

    @property
    def progress_text(self) -> str:
        """What was compared, how far it is, and what it cost, without its name and state."""
        if self.n_votes is not None:
            return f"{self.n_votes} votes on {self.n_experiments} systems, {self.n_shared} prompts"
        text = f"{self.n_experiments} experiments, {self.n_shared} shared examples, {self.order_text}; "
        text += f"{self.judged} of {self.planned} judged"
        if self.calls is not None:
            text += f"; {calls_text(self.calls, self.calls_cached or 0, self.cost_usd)}"
        elif self.state in ("completed", "incomplete"):
            text += "; model calls of evaluators were not recorded, so their cost is unknown"
        return f"{text}; {self.reason}" if self.reason else text

    @property
    def order_text(self) -> str:
        if self.both_orders:
            return "each pair in both orders"
        return "random order per pair" if self.randomize_order else "fixed order"


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate:
    """The win rate of a candidate against a baseline."""

    metric: str
    candidate_experiment_id: str
    candidate: str
    baseline_experiment_id: str
    baseline: str
    slice: str
    length_controlled: bool
    win_rate: float | None
    standard_error: float | None
    win_rate_low: float | None
    win_rate_high: float | None
    method: str
    p_value: float | None
    p_adjusted: float | None
    n_pairs: int
    wins: int
    losses: int
    ties: int
    half: int
    flipped: int
    missing: int
    left_out: int
    decided_without_judge: int | None
    discrete_win_rate: float | None  # if verdicts are graded: counted as wins, losses and ties
    discrete_standard_error: float | None
    discrete_low: float | None
    discrete_high: float | None
    conclusion: str
    reason: str | None
    reason_code: str | None
    warning: str | None

    @property
    def what(self) -> str:
        return "at equal length" if self.length_controlled else self.slice

    @property
    def rate_text(self) -> str:
        return percent(self.win_rate, self.win_rate_low, self.win_rate_high)

    @property
    def discrete_text(self) -> str:
        return percent(self.discrete_win_rate, self.discrete_low, self.discrete_high)

    @property
    def p_text(self) -> str:
        return p_text(self.p_value)

    @property
    def p_adjusted_text(self) -> str:
        return p_text(self.p_adjusted)

    @property
    def ties_text(self) -> str:
        return f"{self.ties} ({self.flipped} flipped)" if self.flipped else str(self.ties)

    @property
    def is_overall(self) -> bool:
        """Whether it is of all examples, and not length-controlled."""
        return self.slice == "all" and not self.length_controlled

    @property
    def verdict_text(self) -> str:
        return conclusion_text(self.conclusion, self.reason_code)

    @property
    def counts(self) -> tuple[str, str, str, str]:
        """Wins, ties, losses and missing; empty for the length-controlled row, which covers the same pairs."""
        if self.length_controlled:
            return "", "", "", ""
        return str(self.wins), self.ties_text, str(self.losses), str(self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedExperiment:
    """One experiment's rank and rating."""

    metric: str
    rank: int | None
    rank_low: int | None  # the best and the worst rank that the differences of ratings allow
    rank_high: int | None
    experiment_id: str
    experiment: str
    rating: float | None
    standard_error: float | None
    ci_low: float | None
    ci_high: float | None
    method: str | None
    win_rate: float | None
    win_rate_standard_error: float | None
    win_rate_low: float | None
    win_rate_high: float | None
    wins: int
    losses: int
    ties: int
    guarded: bool | None  # whether half a win and half a loss keep its rating finite
    guard_reason: str | None
    reason: str | None

    @property
    def rank_text(self) -> str:
        if self.rank is None:
            return "-"
        return f"{self.rank}" if self.rank_low is None else f"{self.rank} [{self.rank_low}, {self.rank_high}]"

    @property
    def rating_text(self) -> str:
        if self.rating is None:
            return "-"
        has_interval = self.ci_low is not None and self.ci_high is not None
        return f"{self.rating:.0f}" + (f" [{self.ci_low:.0f}, {self.ci_high:.0f}]" if has_interval else "")

    @property
    def rate_text(self) -> str:
        return percent(self.win_rate, self.win_rate_low, self.win_rate_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeBias:
    """One check of a judge for a bias, such as for a position."""

    metric: str
    bias: str
    passed: bool | None
    message: str
    reason_code: str | None

    @property
    def text(self) -> str:
        return f"{self.metric}, {self.bias.replace('_', ' ')}: {self.message}"


MAX_PAIRS = 20
"""Most pairs of systems that are written out in sentences, and in the narrow table."""

ENOUGH_PAIRS, NEARLY_ALL = 20, 0.95
"""The number of pairs, and the share of ties, from which a judge is said not to distinguish the answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """Everything that is shown about a comparison."""

    overview: Overview
    win_rates: Sequence[WinRate]
    ranking: Sequence[RankedExperiment]
    biases: Sequence[JudgeBias]
    errors: Sequence[tuple[str, str, int]]  # evaluator, error, how often
    batch: int | None = None  # examples judged at a time, if it may stop early

    @property
    def known_biases(self) -> list[JudgeBias]:
        """The bias checks that had data."""
        return [bias for bias in self.biases if bias.reason_code != "no_data"]

    @property
    def sentences(self) -> list[str]:
        """The comparison in sentences."""
        return [*self.verdicts, *self.remarks]

    @property
    def remarks(self) -> list[str]:
        """What the verdicts rest on, and what is missing."""
        return [*self._graded(), *self._reasons(), *self._of_ties(), *self._about_ratings(), *self._warnings()]

    @property
    def verdicts(self) -> list[str]:
        if self.has_many_pairs:
            return self._counted_verdicts()
        return [
            f"{rate.candidate} against {rate.baseline}, {rate.metric}: {rate.verdict_text}, win rate {rate.rate_text}"
            for rate in self.overall
        ]

    def _counted_verdicts(self) -> list[str]:
        by_metric: dict[str, Counter[str]] = {}
        for rate in self.overall:
            by_metric.setdefault(rate.metric, Counter())[rate.verdict_text] += 1
        return [
            f"{metric}, {verdicts.total()} pairs of systems by their direct votes: "
            + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            for metric, verdicts in by_metric.items()
        ]

    def _graded(self) -> list[str]:
        """Return the discrete win rates of judges with graded verdicts, whose win rate is their mean preference."""
        if self.has_many_pairs:
            return []
        return [
            f"{rate.candidate} against {rate.baseline}, {rate.metric}: the win rate is the mean of graded verdicts; "
            f"counted as wins, ties and losses it is {rate.discrete_text}"
            for rate in self.overall
            if rate.discrete_win_rate is not None
        ]

    def _reasons(self) -> list[str]:
        """Return the reasons for not enough evidence, except an insignificant difference.

        A reason for all pairs is given once.
        """
        if self.has_many_pairs:
            return []
        undecided: dict[tuple[str, str], list[str]] = {}
        for rate in self.overall:
            if rate.reason and rate.reason_code != "no_significant_difference":
                pairs = undecided.setdefault((rate.metric, rate.reason), [])
                pairs.append(f"{rate.candidate} and {rate.baseline}")
        total = Counter(rate.metric for rate in self.overall)
        return [
            f"not enough evidence in {metric}{_between(pairs, total[metric])}: {reason}"
            for (metric, reason), pairs in undecided.items()
        ]

    def _of_ties(self) -> Iterator[str]:
        """Yield each judge that calls nearly all pairs ties."""
        rates = [rate for rate in self.overall if not rate.length_controlled]
        for metric, of_metric in grouped((rate.metric, rate) for rate in rates).items():
            ties = sum(rate.ties for rate in of_metric)
            pairs = ties + sum(rate.wins + rate.losses for rate in of_metric)
            if pairs >= ENOUGH_PAIRS and ties >= NEARLY_ALL * pairs:
                yield f"{metric} cannot distinguish these answers: {ties:,} of {pairs:,} pairs are ties"

    def _about_ratings(self) -> list[str]:
        """Return why there are no ratings, or why some have a weak prior, and whose."""
        guarded: dict[tuple[str, str], list[str]] = {}
        for row in self.ranking if self.has_ranking else ():
            if row.guarded and row.guard_reason:
                guarded.setdefault((row.metric, row.guard_reason), []).append(row.experiment)
        missing = dict.fromkeys(
            (row.metric, row.reason) for row in self.ranking if row.rating is None and self.has_ranking
        )
        return [f"{metric} has no ratings: {reason}" for metric, reason in missing] + [
            f"{metric}, ratings of {', '.join(names)}: {reason}" if len(names) <= MAX_PAIRS else f"{metric}: {reason}"
            for (metric, reason), names in guarded.items()
        ]

    @property
    def overall(self) -> list[WinRate]:
        """The win rates over all examples, those that are decided first: the others may be cut."""
        found = [rate for rate in self.win_rates if rate.is_overall]
        return sorted(found, key=lambda rate: rate.conclusion not in ("better", "worse"))

    @property
    def ranking_by_decided(self) -> list[RankedExperiment]:
        """The ranking, by the judges that decide most pairs first."""
        decided = Counter(rate.metric for rate in self.overall if rate.conclusion in ("better", "worse"))
        return sorted(self.ranking, key=lambda row: -decided[row.metric])

    @property
    def has_ranking(self) -> bool:
        """Whether ratings are shown: for three or more systems."""
        return self.overview.n_experiments > 2

    @property
    def has_many_pairs(self) -> bool:
        """Whether there are too many pairs of systems for a sentence each."""
        return len(self.overall) > MAX_PAIRS

    def _warnings(self) -> list[str]:
        warnings, over = [], self.overview
        if over.n_left_out:
            warnings.append(
                f"{over.n_left_out} examples were not compared: not all experiments have them with the same inputs"
            )
        if over.decided_without_judge:
            policy = "the failed run loses" if over.failed_output_policy == "loses" else "such pairs are left out"
            warnings.append(f"{over.decided_without_judge} judgements needed no judge, as a run had failed: {policy}")
        if over.missing and (self.batch is None or not over.reason):  # else its line says why
            warnings.append(f"{over.missing} of {over.planned} judgements are missing")
        return warnings


def comparison_report(store: Store, comparison_id: str) -> ComparisonReport:
    """Return the report of a comparison, read from one consistent state of the store.

    Raise StorageError if a file of the comparison or of its experiments is damaged.
    """
    ((experiments, batch),) = ask(store, (_COMPARED, [comparison_id]))[0]
    store.verify(experiments, {"experiments", "outputs"})
    with store.reading(only={"comparison_id": [comparison_id], "experiment_id": [comparison_id, *experiments]}):
        (overview,) = comparison_overviews(store, "comparison_id = $1", [comparison_id])
        (errors,) = ask(store, (_ERRORS, [comparison_id]))
    rates, ranking, biases = ask(
        store, (_RATES, [[comparison_id]]), *((query, [comparison_id]) for query in (_RATINGS, _BIASES))
    )
    win_rates = [record_of(WinRate, row[1:]) for row in rates]
    ranked = records_of(RankedExperiment, ranking)
    names = names_apart(store, _names(win_rates))
    return ComparisonReport(
        overview=overview,
        win_rates=_renamed(win_rates, names),
        ranking=[replace(row, experiment=names.get(row.experiment_id, row.experiment)) for row in ranked],
        biases=records_of(JudgeBias, biases),
        errors=[(evaluator, error, int(count)) for evaluator, error, count in errors],
        batch=batch,
    )


def _names(rates: Sequence[WinRate]) -> dict[str, str]:
    """Return the names of the experiments that are compared, by id."""
    candidates = {rate.candidate_experiment_id: rate.candidate for rate in rates}
    return candidates | {rate.baseline_experiment_id: rate.baseline for rate in rates}


def _renamed(rates: Sequence[WinRate], names: Mapping[str, str]) -> list[WinRate]:
    return [
        replace(rate, candidate=names[rate.candidate_experiment_id], baseline=names[rate.baseline_experiment_id])
        for rate in rates
    ]


def overall_win_rates(store: Store, comparisons: Sequence[str]) -> dict[str, list[WinRate]]:
    """Return the win rates of each comparison over all examples, not length-controlled."""
    (rows,) = ask(store, (_RATES, [list(comparisons)]))
    rates = ((comparison_id, record_of(WinRate, values)) for comparison_id, *values in rows)
    found = grouped((comparison_id, rate) for comparison_id, rate in rates if rate.is_overall)
    names = names_apart_in_each(store, [_names(rates) for rates in found.values()])
    return {owner: _renamed(rates, apart) for (owner, rates), apart in zip(found.items(), names, strict=True)}


def comparison_overviews(store: Store, where: str, values: Sequence[object]) -> list[Overview]:
    """Return the comparisons for which a condition holds; `where` is SQL from there on, with an order if it matters."""
    (sets,) = ask(store, (f"select comparison_id, experiments from comparison_sets where {where}", values))
    if not sets:
        return []
    ids = [comparison_id for comparison_id, _ in sets]
    compared = [experiment for _, experiments in sets for experiment in experiments]
    query = f"select {fields_of(Overview)} from comparison_overview where {where}"
    with store.reading(only={"comparison_id": ids, "experiment_id": {*ids, *compared}}):
        found = ask_records(store, Overview, query, values)
    more = [spooled_if_unfinished(store, overview.state, overview.comparison_id, "judgements") for overview in found]
    return [replace(overview, judged=overview.judged + count) for overview, count in zip(found, more, strict=True)]


def _between(pairs: Sequence[str], total: int) -> str:
    return "" if len(pairs) == total else f" between {'; '.join(pairs)}"


_COMPARED = "select experiments, (spec ->> 'batch')::int from source.comparison_sets where comparison_id = $1"

_RATES = f"""
select comparison_id, {fields_of(WinRate)} from win_rates where is_one_of(comparison_id, $1)
order by metric, baseline, candidate, slice <> 'all', length_controlled, slice
"""

_RATINGS = f"""
select {fields_of(RankedExperiment)} from leaderboard where comparison_id = ? and slice = 'all'
order by metric, rank, experiment
"""

_BIASES = f"select {fields_of(JudgeBias)} from judge_biases where comparison_id = ? order by metric, bias"

_ERRORS = """
select evaluator, min(error) || case when count(distinct error) > 1 then ' (and the like)' else '' end as error,
       count(*) as n
from comparisons where comparison_id = ? and status = 'failed'
group by evaluator, regexp_replace(error, '''[^'']*''', '', 'g')  -- ignoring names and ids
order by n desc, evaluator, error limit 10
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairChoice:
    """Which pairs are listed. None does not restrict them."""

    metric: str
    kind: Kind | None = None
    systems: Sequence[str] = ()  # at most two experiment ids that the pair is of
    split: str | None = None
    text: str | None = None  # within the example's id, inputs or reference, an answer, or what the judge said


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPair:
    """One pair of answers, and the judge's combined outcome. Left and right are as in `pair_outcomes`."""

    metric: str
    example_id: str
    repetition: int
    left_experiment_id: str
    right_experiment_id: str
    left_run_id: str
    right_run_id: str
    kind: Kind
    left_points: float | None
    left_score: float | None
    right_score: float | None
    shown_first: Side | Literal["both"] | None  # None: not known
    weight: float
    decided_by: str | None
    comment: str | None  # of the only order, or of that with the left answer first
    other_comment: str | None
    error: str | None
    agreement: float | None
    judge_model: str | None
    cost_usd: float | None
    split: str | None
    inputs: str | None  # JSON, like the rest
    reference_outputs: str | None
    metadata: str | None
    left_outputs: str | None = None
    right_outputs: str | None = None
    left_error: str | None = None  # why there is no answer
    right_error: str | None = None

    @property
    def comments(self) -> list[tuple[Side | None, str]]:
        """What the judge said, each with the answer that was shown first; None if that is not known."""
        if self.shown_first == "both":
            said: list[tuple[Side | None, str | None]] = [("left", self.comment), ("right", self.other_comment)]
        else:
            said = [(self.shown_first, self.comment)]
        return [(first, comment) for first, comment in said if comment]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairList:
    """One page of the pairs that were chosen, and how many pairs of each kind there are, whatever the chosen kind."""

    counts: Counter[Kind]
    n_chosen: int
    pairs: Sequence[JudgedPair]


def pair_list(store: Store, row: ComparisonSetRow, choice: PairChoice, *, page: int, in_page: int) -> PairList:
    """Return a page of a comparison's pairs, in the dataset's order; `page` counts from 1."""
    chosen, values = _chosen(row, choice)
    counted, listed = ask(
        store,
        (f"{chosen} select kind, count(*) from chosen group by kind", values),
        (
            f"{chosen} select {_COLUMNS} from chosen where ${len(values) + 1}::varchar is null or kind = "
            f"${len(values) + 1} order by position, example_id, repetition, left_experiment_id, right_experiment_id "
            f"limit {in_page} offset {in_page * (page - 1)}",
            [*values, choice.kind],
        ),
    )
    counts: Counter[Kind] = Counter(dict(counted))
    return PairList(
        counts=counts,
        n_chosen=counts.total() if choice.kind is None else counts[choice.kind],
        pairs=_with_answers(store, row, [dict(zip(_FIELDS, pair, strict=True)) for pair in listed]),
    )


def judged_pair(store: Store, row: ComparisonSetRow, metric: str, left_run: str, right_run: str) -> JudgedPair:
    """Return one pair. Raise InputError if the comparison does not have it."""
    chosen, values = _chosen(row, PairChoice(metric=metric))
    of_runs = f"left_run_id = ${len(values) + 1} and right_run_id = ${len(values) + 2}"
    (found,) = ask(
        store, (f"{chosen} select {_COLUMNS} from chosen where {of_runs} limit 1", [*values, left_run, right_run])
    )
    if not found:
        raise NotFoundError(f"pair {left_run} and {right_run}: not in {row.name} by {metric}, wanted one of its pairs")
    (pair,) = _with_answers(store, row, [dict(zip(_FIELDS, found[0], strict=True))])
    return pair


def pair_metrics(store: Store, comparison_id: str) -> list[str]:
    """Return the metrics by which a comparison's pairs were judged."""
    query = "select distinct metric from staging.comparisons where comparison_id = ? order by metric"
    return [metric for (metric,) in store.query(query, [comparison_id])]


def pair_splits(store: Store, row: ComparisonSetRow) -> list[str]:
    """Return the splits of the compared examples."""
    query = "select distinct split from source.examples where snapshot_id = ? and split is not null order by split"
    return [split for snapshot in row.snapshot_ids[:1] for (split,) in store.query(query, [snapshot])]


def _chosen(row: ComparisonSetRow, choice: PairChoice) -> tuple[str, list[object]]:
    """Return the SQL of the chosen pairs, as a CTE, and its values. Only searching reads the answers."""
    values: list[object] = [row.comparison_id, choice.metric, next(iter(row.snapshot_ids), None)]
    conditions = []
    for system in choice.systems:
        values.append(system)
        conditions.append(f"${len(values)} in (p.left_experiment_id, p.right_experiment_id)")
    if choice.split is not None:
        values.append(choice.split)
        conditions.append(f"x.split = ${len(values)}")
    if choice.text is not None:
        values += [choice.text, *row.experiments]
        conditions.append(_with_text(len(values) - len(row.experiments), len(values)))
    where = "".join(f" and {condition}" for condition in conditions)
    return f"with chosen as ({_PAIRS}{where})", values


def _with_text(first: int, last: int) -> str:
    """Return the condition that a pair has a text, value `first`; the values up to `last` are the experiments."""
    owners = ", ".join(f"${number}" for number in range(first + 1, last + 1))
    texts = ("p.example_id", "x.inputs", "x.reference_outputs", "p.comment", "p.other_comment")
    found = " or ".join(f"contains(lower({text}), lower(${first}))" for text in texts)
    answers = (
        f"select run_id from outputs where experiment_id in ({owners}) and contains(lower(outputs), lower(${first}))"
    )
    return f"({found} or p.left_run_id in ({answers}) or p.right_run_id in ({answers}))"


def _with_answers(store: Store, row: ComparisonSetRow, pairs: Sequence[dict[str, object]]) -> list[JudgedPair]:
    """Add the answers, which are read for these pairs only."""
    runs = sorted({str(pair[side]) for pair in pairs for side in ("left_run_id", "right_run_id")})
    owners = sorted({str(pair[side]) for pair in pairs for side in ("left_experiment_id", "right_experiment_id")})
    answers: dict[str, tuple[str | None, str | None]] = {}
    if runs and row.n_votes is None:
        places = [f"${number}" for number in range(1, len(owners) + len(runs) + 1)]
        query = (
            f"select run_id, outputs, coalesce(error, status) from outputs "
            f"where experiment_id in ({', '.join(places[: len(owners)])}) "
            f"and run_id in ({', '.join(places[len(owners) :])})"
        )
        (found,) = ask(store, (query, [*owners, *runs]))
        answers = {run: (outputs, error if outputs is None else None) for run, outputs, error in found}
    nothing = (None, None if row.n_votes is not None else "no such run")
    out = []
    for pair in pairs:
        left, right = (answers.get(str(pair[side]), nothing) for side in ("left_run_id", "right_run_id"))
        of_sides = {"left_outputs": left[0], "right_outputs": right[0], "left_error": left[1], "right_error": right[1]}
        out.append(JudgedPair(**pair, **of_sides))  # type: ignore[arg-type]
    return out


_FIELDS = JudgedPair.__slots__[:24]
_COLUMNS = ", ".join(_FIELDS)

_PAIRS = """
select p.* exclude (error), coalesce(p.outcome, p.status) as kind, x.position, x.split, x.inputs, x.reference_outputs,
       coalesce(x.metadata, p.vote_metadata) as metadata,
       case when p.status = 'missing' then coalesce(p.error, 'no judgement in one of the two orders') end as error
from pair_verdicts p
left join examples x on x.snapshot_id = $3 and x.example_id = p.example_id
where p.comparison_id = $1 and p.metric = $2"""
