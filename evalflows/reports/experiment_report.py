"""What is reported of experiments beside their results: progress, cost, failures, and checks of judges."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalflows.analysis.figures import calls_text, shares_text, usd
from evalflows.analysis.judge_exclusions import (
    Exclusion,
    SeatedPanel,
    Stepped,
    excluded_metrics,
    panels_in,
    specs_with_steps,
    stepped_in,
)
from evalflows.analysis.savings import Batched, batched
from evalflows.reports.confusion import CONFUSIONS, Confusion, confusions_in
from evalflows.reports.decisions import Decision
from evalflows.reports.grids import grid_sentences, grids_on
from evalflows.reports.headlines import verdict_sentences
from evalflows.reports.results import (
    Remark,
    RemarkKind,
    Result,
    by_severity,
    judges_in_sentences,
    remarks_on,
)
from evalflows.reports.slices import field_lines, slice_means
from evalflows.reports.worst import Worst, is_higher_better, worst_of
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES, is_pass_k
from evalflows.specs.thinking import IN_JSON
from evalflows.store.final_examples import COPIES_KEPT, Copy, copies_text, read_copies
from evalflows.store.kept_checks import QUARANTINE
from evalflows.store.queries.invalid_trials import InvalidTrials, invalid_trials
from evalflows.store.queries.looks import final_ids
from evalflows.store.queries.progress import spooled_if_unfinished
from evalflows.store.records import bundles_batch, controls_batch, drift_batch
from evalflows.store.sql import ask, ask_records, record_of, records_of
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.analysis.grid import Grid

MANY_TRIED = 5
"""From how many versions on the same examples on the best of them is ahead partly by luck."""

_TRIED = """
select o.experiment_id, count(distinct e.target_version)
from source.experiments o join source.experiments e on e.snapshot_id = o.snapshot_id and e.started_at <= o.started_at
where is_one_of(o.experiment_id, $1) and not list_contains(e.tags, 'trial') group by o.experiment_id
"""

_REDUCED = """
select connection, min(width), max(width), count(*) filter (reason in ('refused', 'refused_waiting')) as cuts
from (select distinct connection, process, changed_at, width, reason from limits where is_one_of(experiment_id, $1))
group by connection having cuts > 0 order by connection
"""

_CHECKS = """
select subject_id, passed, message, name from source.checks
where is_one_of(batch_id, $1) and subject_kind = 'judge' order by subject_id, name desc
"""

_DRIFTS = """
select subject_id, passed, message, name from source.checks
where is_one_of(batch_id, $1) and name = 'drift' and passed = false order by column_name
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOverview:
    """One experiment and its progress. Calls, tokens and cost are None where they were not recorded."""

    experiment_id: str
    name: str
    target: str
    run_group: str
    state: str
    reason: str | None
    tags: list[str]
    dataset_name: str | None
    snapshot_id: str
    n_examples: int
    repetitions: int
    planned: int
    answered: int  # of an unfinished one, also those that are not in its parts yet
    cut_off: int  # of those answered: at the token limit, with `truncated: score`
    failed: int
    calls: int | None
    calls_cached: int | None
    recorded_calls: int
    application_calls: int  # requests to an application among them, as the turns of a conversation
    unrecorded_answers: int  # whose target may have made calls that nobody recorded
    unrecorded_judgements: int
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    spent_usd: float | None  # the same, or what is known of it, with estimates; None if nothing is known
    spent_reason: str | None  # why that is None
    estimated_usd: float | None  # the estimated part of it
    estimated_calls: int
    unpriced_calls: int  # recorded ones whose cost is not estimated either
    waiting_calls: int  # of the estimated ones, those that wait for batches
    budget_usd: float | None
    cached_share: float | None  # of input tokens
    reasoning_share: float | None  # of output tokens
    mean_latency_s: float | None
    application_version: str | None
    git_commit: str | None
    started_at: datetime
    ended_at: datetime | None
    tried: int  # versions of targets that have run on its examples until then, trials excepted
    batched: Batched | None = None  # what batches and the provider's cache did for it, if there were any

    @property
    def tried_text(self) -> str:
        """After how many versions it was made, in words; empty if after few."""
        return (
            f"{self.tried} versions of targets have run on these examples: the best of many is ahead partly by luck"
            if self.tried >= MANY_TRIED
            else ""
        )

    @property
    def has_no_answer(self) -> bool:
        """Whether it has ended without any answer: its failures say why."""
        return self.state == "completed" and self.answered == 0 and self.failed > 0

    @property
    def unrecorded(self) -> list[str]:
        """Who may have made model calls that nobody recorded, in words."""
        counts = {"the target": self.unrecorded_answers, "evaluators": self.unrecorded_judgements}
        return [who for who, count in counts.items() if count]

    @property
    def has_unrecorded(self) -> bool:
        """Whether model calls may have been made that nobody recorded, or that only their cost is known of."""
        return bool(self.unrecorded) or (self.calls is None and self.cost_usd is not None)

    @property
    def about(self) -> str:
        """How exact `spent_usd` is, before it: `about ` with estimates, `at least ` if a cost is unknown."""
        has_ended = self.state in ("completed", "incomplete")
        if self.cost_usd is None and (self.unpriced_calls or self.unrecorded or not has_ended):
            return "at least "
        return "about " if self.estimated_calls else ""

    @property
    def spent_figure(self) -> str | None:
        """What was spent in USD, and how exact that is; None if nothing is known."""
        is_known = self.spent_usd is not None and (self.spent_usd or not self.about)
        return f"{self.about}{usd(self.spent_usd or 0.0)}" if is_known else None

    @property
    def spent_text(self) -> str | None:
        return None if self.spent_figure is None else f"{self.spent_figure} USD"

    @property
    def calls_text(self) -> str:
        """Its model calls and their cost in words, known or not; empty if nothing was recorded yet."""
        parts = []
        if self.calls is not None:
            paid = None if self.spent_text is None else self.spent_usd
            parts.append(calls_text(self.calls, self.calls_cached or 0, paid, self.about, self.application_calls))
        elif self.spent_text is not None:
            is_reported = self.recorded_calls == self.application_calls and not self.about
            parts.append(f"{self.spent_text}, as the application reports" if is_reported else self.spent_text)
        if self.batched is not None and self.batched.usd_saved is not None and self.cost_usd is not None:
            direct = usd(self.cost_usd + self.batched.usd_saved)
            parts.append(f"{direct} USD without batches and the provider's cache")
        parts += [shares] if (shares := shares_text(self.cached_share, self.reasoning_share)) else []
        if self.unrecorded:
            others = f" ({self.recorded_calls} others were)" if self.recorded_calls else ""
            whose = " and ".join(self.unrecorded)
            parts.append(f"model calls of {whose} were not recorded, so their cost is unknown{others}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error of a target or an evaluator, and how often it occurred."""

    experiment: str
    source: str  # `target`, or the evaluator
    error: str
    count: int
    trace: str | None  # the frames of the user's code
    example_id: str | None  # the first with this error

    @property
    def text(self) -> str:
        example = f" (example {self.example_id})" if self.example_id else ""
        return f"{self._where}: {self.error}{example}"

    @property
    def count_text(self) -> str:
        """The same without the error, which may quote the data."""
        return f"{self._where}: an error"

    @property
    def _where(self) -> str:
        return f"{self.count} x {self.experiment}, {self.source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCheck:
    """What a judge said of the known-answer controls, of anchors, or alone instead of in a bundle."""

    judge: str
    passed: bool | None
    message: str
    name: str = "controls"  # or bundle, or drift

    @property
    def remark(self) -> Remark:
        passed: RemarkKind = "validated" if self.name == "controls" else "bundled"
        failed: RemarkKind = "controls" if self.name == "controls" else "bundle"
        return Remark(passed if self.passed else failed, f"{self.judge}: {self.message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypesApart:
    """Answers of an experiment that `exact_match` cannot find equal, as their references have another type."""

    target: str
    metric: str
    answers: int
    answer_type: str  # text, numbers or booleans
    reference_type: str
    of: int  # scored answers

    @property
    def text(self) -> str:
        many = "all" if self.answers == self.of else f"{self.answers} of"
        what = f"{many} {self.of} answers of {self.target} are {self.answer_type} where the references"
        return f"{self.metric}: {what} are {self.reference_type}; `any_type: true` compares them by value"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingAnswers:
    """Answers of an experiment that begin with the model's thinking."""

    target: str
    answers: int
    of: int

    @property
    def text(self) -> str:
        counted = f"{self.answers} of {self.of} answers of {self.target}"
        tag = "begin with the model's thinking, in a `think` tag"
        return f"{counted} {tag}; `strip_thinking: true` of a chat target leaves it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedCalls:
    """Calls of an experiment whose cost is not known."""

    experiment: str
    calls: int  # whose cost is not estimated either
    estimated_calls: int
    estimated_usd: float | None
    spent_usd: float | None  # known and estimated
    budget_usd: float | None
    waiting: int  # of the estimated ones, those that wait for batches
    are_requests: bool  # to an application, whose highest reported cost is the estimate; otherwise it is from texts

    @classmethod
    def of(cls, overview: ExperimentOverview) -> "UnpricedCalls | None":
        """Return those of an experiment; None if there are none that anyone has to know of."""
        if not overview.estimated_calls and (not overview.unpriced_calls or overview.budget_usd is None):
            return None
        return cls(
            experiment=overview.name,
            calls=overview.unpriced_calls,
            estimated_calls=overview.estimated_calls,
            estimated_usd=overview.estimated_usd,
            spent_usd=overview.spent_usd,
            budget_usd=overview.budget_usd,
            waiting=overview.waiting_calls,
            are_requests=overview.recorded_calls == overview.application_calls,
        )

    @property
    def estimated_text(self) -> str:
        """What is estimated, in words; empty if nothing is."""
        if self.estimated_usd is None or self.spent_usd is None:
            return ""
        noun = "request" if self.are_requests else "call"
        calls = f"{self.estimated_calls} {noun}{'s' * (self.estimated_calls != 1)}"
        why = f"the texts of {calls}, whose usage was not reported"
        if self.are_requests:
            why = f"the highest reported cost for {calls} of unknown cost"
        if self.waiting == self.estimated_calls:
            most = self.estimated_usd
            return f"{calls} wait for batches, at most {most:.4f} USD; {self.spent_usd - most:.4f} USD already spent"
        if self.waiting:
            why += f" or which wait for batches ({self.waiting})"
        more = f", besides {self.calls} calls of unknown cost" if self.calls else ""
        return f"{self.spent_usd:.4f} USD spent, of which {self.estimated_usd:.4f} estimated from {why}{more}"

    @property
    def uncounted_text(self) -> str:
        """What a budget in USD does not count, in words; empty if there is no such call or budget."""
        if not self.calls or self.budget_usd is None:
            return ""
        return f"{self.calls} calls of unknown cost do not count toward the budget of {self.budget_usd:g} USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedLimit:
    """A connection whose calls at once were reduced, because some were refused."""

    connection: str
    lowest: int
    highest: int
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentsReport:
    """Everything that is shown about some experiments; of several, the decisions are those on any of them."""

    experiments: Sequence[ExperimentOverview]
    results: Sequence[Result]
    decisions: Sequence[Decision]
    worst: Worst | None
    failures: Sequence[Failure]
    judge_checks: Sequence[JudgeCheck]
    drifts: Sequence[JudgeCheck]  # judges that have drifted, as their anchors show
    excluded: Mapping[tuple[str, str], Exclusion]  # by experiment and metric
    stepped: Sequence[Stepped]  # fallbacks and earlier tiers that judged more than a few
    panels: Sequence[SeatedPanel]  # who decided in each panel
    types_apart: Sequence[TypesApart]
    thinking: Sequence[ThinkingAnswers]
    invalid: Sequence[InvalidTrials]
    quarantine: Sequence[str]  # what is in quarantine, a line for each entry of the spec
    copies: Sequence[Sequence[Copy]]  # examples that resemble final ones, by snapshot
    hides_final: bool  # whether there are final examples, which are not among the worst
    unpriced: Sequence[UnpricedCalls]
    reduced_limits: Sequence[ReducedLimit]
    confusions: Sequence[Confusion]  # of evaluators that compare labels
    by_field: Sequence[str]  # means by the fields of the examples, in lines; none of several experiments
    grids: "Sequence[Grid]"  # of a matrix, if these are all of its cells, by metric

    @property
    def remarks(self) -> list[Remark]:
        """What limits the results or is missing from them, the worst first."""
        return by_severity([*remarks_on(self.results), *self._of_judges, *self._of_calls, *self._of_experiments])

    @property
    def sentences(self) -> list[str]:
        """Those of grids, one per candidate, then the remarks."""
        return [*self._verdicts, *(remark.text for remark in self.remarks)]

    @property
    def sentences_without_data(self) -> list[str]:
        """The same, none of which quotes a value of the data."""
        remarks = dict.fromkeys(remark.without_data or remark.text for remark in self.remarks)
        return [*self._verdicts, *remarks]

    @property
    def verdicts(self) -> list[str]:
        """How each candidate compares with the baseline, in a sentence."""
        return verdict_sentences(self.results, self.decisions)

    @property
    def _verdicts(self) -> list[str]:
        return [*(text for grid in self.grids for text in grid_sentences(grid)), *self.verdicts]

    @property
    def _of_judges(self) -> Iterator[Remark]:
        """Yield what is known of the judges, unless a sentence reports it, and who judged in their place."""
        mentioned = judges_in_sentences(self.results)
        targets = {experiment.experiment_id: experiment.target for experiment in self.experiments}
        for check in self.judge_checks:
            if check.judge not in mentioned:
                yield check.remark
        yield from (Remark("drift", drift.message) for drift in self.drifts)
        for (_, metric), exclusion in self.excluded.items():
            if exclusion.reason.code == "judge_rejected_by_people" and exclusion.judge not in mentioned:
                yield Remark("people", f"{metric}: {exclusion.message}")
        for stepped in self.stepped:
            yield Remark("stepped", f"{stepped.text} answers of {targets[stepped.owner]}")
        of_panels = [panel.text for panel in self.panels if not panel.is_whole]
        of_panels += [
            f"{panel.metric}: {judge} counted, and is left out from the next run on"
            for panel in self.panels
            if (panel.owner, panel.metric) not in self.excluded
            for judge in panel.counted
            if (panel.owner, f"{panel.metric}/{judge}") in self.excluded
        ]
        yield from (Remark("panel", text) for text in dict.fromkeys(of_panels))

    @property
    def _of_calls(self) -> Iterator[Remark]:
        for calls in self.unpriced:
            if calls.uncounted_text:
                yield Remark("budget", f"{calls.experiment}: {calls.uncounted_text}")
            if calls.estimated_text:
                yield Remark("estimated", f"{calls.experiment}: {calls.estimated_text}")
        for limit in self.reduced_limits:
            reduced = f"reduced {limit.times} times because calls were refused"
            yield Remark(
                "connection", f"{limit.connection}: {limit.lowest} to {limit.highest} calls at once, {reduced}"
            )

    @property
    def _of_experiments(self) -> Iterator[Remark]:
        yield from (Remark("types", apart.text) for apart in self.types_apart)
        yield from (Remark("thinking", thinking.text) for thinking in self.thinking)
        yield from (Remark("invalid", invalid.text) for invalid in self.invalid)
        yield from (Remark("quarantine", text, text.partition("; examples: ")[0]) for text in self.quarantine)
        yield from (
            Remark("copies", copies_text(copies), copies_text(copies, with_ids=False)) for copies in self.copies
        )
        by_cause = sorted(self.failures, key=lambda failure: (failure.source != "target", -failure.count))
        yield from (Remark("failure", failure.text, failure.count_text) for failure in by_cause)
        for experiment in self.experiments:
            if experiment.batched is not None and (count := experiment.batched.answers):
                of = "1 answer" if count == 1 else f"{count} answers"
                yield Remark("batched", f"{experiment.target}: no latency is known of {of}, which came in batches")
        if self.experiments and (said := max(self.experiments, key=lambda experiment: experiment.tried).tried_text):
            yield Remark("tried", said)


def experiments_report(
    store: Store,
    experiments: Iterable[str],
    results: Sequence[Result],
    decisions: Sequence[Decision] = (),
    *,
    with_worst: bool = True,
    with_fields: bool = True,
    with_final: bool = False,
) -> ExperimentsReport:
    """Return the report of experiments, given by id, with these results and decisions. Some may have no result.

    Without `with_worst`, which examples are worst is not looked for; without `with_fields`, nor are means by field.
    Final ones are among the worst only `with_final`.
    """
    ids = list(experiments)
    shown = overviews_of(store, ids)
    groups = {overview.experiment_id: overview.run_group for overview in shown}
    run_groups = sorted({*groups.values()})
    failures, reduced, thinking, confused = _of_each(
        store,
        ids,
        (_FAILURES_OF_EACH, "outputs"),
        (_REDUCED, "limits"),
        (_THINKING, "outputs"),
        (CONFUSIONS, "classified"),
    )
    copies, quarantine, checks, drifts = ask(
        store,
        (COPIES_KEPT, [ids]),
        (_QUARANTINE, [ids]),
        (_CHECKS, [[batch(group) for group in run_groups for batch in (controls_batch, bundles_batch)]]),
        (_DRIFTS, [[drift_batch(group) for group in run_groups]]),
    )
    specs = specs_with_steps(store, ids)
    hidden = final_ids(store, ids) if with_worst and not with_final else frozenset[str]()
    with store.reading(only=_files_behind(store, shown, results)):
        worst = worst_of(store, results, decisions, hidden) if with_worst else None
        by_field = _by_field(store, shown[0], results) if with_fields and len(shown) == 1 else ()
        types_apart = _types_apart(store, results)
    return ExperimentsReport(
        experiments=shown,
        results=results,
        decisions=decisions,
        worst=worst,
        failures=records_of(Failure, failures),
        judge_checks=records_of(JudgeCheck, checks),
        drifts=records_of(JudgeCheck, drifts),
        excluded=excluded_metrics(store, groups),
        stepped=stepped_in(store, specs),
        panels=panels_in(store, specs),
        types_apart=types_apart,
        thinking=records_of(ThinkingAnswers, thinking),
        invalid=invalid_trials(store, ids),
        quarantine=list(dict.fromkeys(line for (text,) in quarantine for line in text.splitlines())),
        copies=read_copies(copies),
        hides_final=bool(hidden),
        unpriced=[calls for overview in shown if (calls := UnpricedCalls.of(overview))],
        reduced_limits=records_of(ReducedLimit, reduced),
        confusions=confusions_in(confused),
        by_field=by_field,
        grids=grids_on(store, ids),
    )


def _of_each(store: Store, ids: Sequence[str], *queries: tuple[str, str]) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each query about experiments, read from their own files: none where the table that it needs,
    named beside it, has no rows of theirs."""
    needed = [query for query, table in queries if any(store.has_rows(table, identity) for identity in ids)]
    with store.reading(only={"experiment_id": ids}):
        found = dict(zip(needed, ask(store, *((query, [ids]) for query in needed)), strict=True)) if needed else {}
    return [found.get(query, []) for query, _ in queries]


def _files_behind(
    store: Store, shown: Sequence[ExperimentOverview], results: Sequence[Result]
) -> dict[str, Collection[str]]:
    """Return, by column, the owners of the rows of experiments and their baselines, with their examples."""
    snapshots = {overview.experiment_id: overview.snapshot_id for overview in shown}
    for result in results:
        if (baseline := result.baseline_experiment_id) is not None and baseline not in snapshots:
            snapshots |= {row.experiment_id: row.snapshot_id for row in store.read("experiments", baseline)}
    return {"experiment_id": [*snapshots], "snapshot_id": {*snapshots.values()}}


def _by_field(store: Store, experiment: ExperimentOverview, results: Sequence[Result]) -> list[str]:
    """Return the means of an experiment's first metric of an evaluator by each field with few values."""
    of_it = (result for result in results if result.experiment_id == experiment.experiment_id and result.scored)
    first = next((row.metric for row in of_it if row.metric not in MEASURES and not is_pass_k(row.metric)), None)
    if first is None:
        return []
    slices = slice_means(store, experiment.experiment_id, experiment.snapshot_id)
    if not slices:
        return []
    higher = is_higher_better(store, experiment.experiment_id, first)
    return field_lines(slices, first, higher_is_better=higher)


def _types_apart(store: Store, results: Sequence[Result]) -> list[TypesApart]:
    some_differ = [result for result in results if result.mean is not None and result.mean < 1 and result.scored]
    if not some_differ:
        return []
    values = [[result.experiment_id for result in some_differ], sorted({result.metric for result in some_differ})]
    if not ask(store, (_COMPARES_TYPES, values))[0]:
        return []
    return ask_records(store, TypesApart, _TYPES_APART, values)


def failures_of(store: Store, experiments: Sequence[str]) -> list[Failure]:
    """Return the errors of targets and evaluators in these experiments, the most frequent first."""
    with store.reading(only={"experiment_id": experiments}):
        return ask_records(store, Failure, _FAILURES_OF_EACH, [list(experiments)])


def overviews(
    store: Store, where: str, values: Sequence[object], experiments: Collection[str] | None = None
) -> list[ExperimentOverview]:
    """Return the experiments for which a condition holds; `where` is SQL from there on, with an order if it matters.

    If it holds only for some of these `experiments`, no files but their own are read.
    """
    with store.reading(only=None if experiments is None else {"experiment_id": experiments}):
        (rows,) = ask(store, (f"{_OVERVIEW} where {where}", values))
    return _with_tried(store, rows)


def overviews_of(store: Store, experiments: Sequence[str]) -> list[ExperimentOverview]:
    """Return experiments given by id, in this order. Of those that have ended, no files but their own are read."""
    query = f"{_OVERVIEW} where is_one_of(experiment_id, $1) order by list_position($1, experiment_id)"
    with store.reading(only={"experiment_id": experiments}):
        (rows,) = ask(store, (query, [list(experiments)]))
        by_batches = batched(store, experiments) if any(store.has_rows("calls", one) for one in experiments) else {}
    found = _with_tried(store, rows)
    return [replace(one, batched=by_batches.get(one.experiment_id)) for one in found] if by_batches else found


def spent_so_far(store: Store, experiments: Sequence[str]) -> dict[str, str]:
    """Return, by id, what is known to be spent in USD, and how exact that is, in experiments whose whole cost is not
    known; those of which nothing is known are left out."""
    if not experiments:
        return {}
    found = overviews(store, "is_one_of(experiment_id, $1)", [list(experiments)], experiments)
    return {overview.experiment_id: figure for overview in found if (figure := overview.spent_figure) is not None}


def _with_tried(store: Store, rows: Sequence[Sequence[Any]]) -> list[ExperimentOverview]:
    tried = dict(ask(store, (_TRIED, [[row[0] for row in rows]]))[0]) if rows else {}
    return [_counted(store, record_of(ExperimentOverview, row, tried=tried.get(row[0], 0))) for row in rows]


def _counted(store: Store, overview: ExperimentOverview) -> ExperimentOverview:
    more = spooled_if_unfinished(store, overview.state, overview.experiment_id, "outputs")
    return replace(overview, answered=overview.answered + more) if more else overview


_OVERVIEW = """
select experiment_id, name, target, run_group, state, reason, tags, dataset_name, snapshot_id, n_examples, repetitions,
       planned, answered, cut_off, failed, calls, calls_cached, recorded_calls, application_calls, unrecorded,
       unrecorded_judgements, tokens_in, tokens_out, cost_usd, spent_usd, spent_reason, estimated_usd, estimated_calls,
       unpriced_calls, waiting_calls, budget_usd, cached_share, reasoning_share, mean_latency_s, application_version,
       git_commit, started_at, ended_at
from experiment_overview
"""

_QUARANTINE = f"""
select message from source.checks where name = '{QUARANTINE}' and is_one_of(subject_id, $1) and message <> ''
order by subject_id
"""

_THINKING = f"""
select target, count(*) filter (regexp_matches(outputs, '{IN_JSON}')) as thinking, count(*)
from source.outputs join source.experiments using (experiment_id)
where is_one_of(experiment_id, $1) and outputs is not null
group by target having thinking > 0 order by target
"""

# A side is compared by the field `key`, by its only field, or whole, as `exact_match` does.
_WITH_RULES = """
with rules as (
    select *, coalesce(nullif(rule ->> 'name', ''), 'exact_match') as metric, rule ->> '$.args.key' as key
    from (select experiment_id, target, snapshot_id, unnest(json_extract(spec, '$.evaluators[*]')) as rule
          from source.experiments where is_one_of(experiment_id, $1))
    where rule ->> 'use' = 'exact_match' and rule ->> '$.args.any_type' is distinct from 'true'
)"""

_COMPARES_TYPES = f"{_WITH_RULES} select 1 from rules where list_contains($2, metric) limit 1"

_TYPES_APART = f"""
{_WITH_RULES}, compared as (
    select target, metric, value, list_transform([o.outputs, x.reference_outputs], lambda side: json_type(case
               when json_type(side) <> 'OBJECT' then side
               when key is not null then json_extract(side, '$."' || key || '"')
               when len(json_keys(side)) = 1 then json_extract(side, '$.*')[1] else side end)) as types
    from rules join run_values v using (experiment_id, metric) join outputs o using (experiment_id, run_id)
    join examples x on x.snapshot_id = rules.snapshot_id and x.example_id = o.example_id
    where v.status = 'scored' and list_contains($2, metric)
), named as (
    select target, metric, value, list_transform(types, lambda type: case type when 'VARCHAR' then 'text'
               when 'BOOLEAN' then 'booleans' when 'ARRAY' then null when 'OBJECT' then null when 'NULL' then null
               else 'numbers' end) as types
    from compared
)
select target, metric, count(*), types[1], types[2], any_value(n) from (
    select *, count(*) over (partition by target, metric) as n from named
) where value = 0 and types[1] <> types[2] and 'text' in (types[1], types[2])
group by target, metric, types[1], types[2] order by target, metric, 3 desc
"""

_FAILURES_OF_EACH = """
select e.name, what, error, count(*) as n, min(error_trace), min(example_id) from (
    select experiment_id, 'target' as what, error, error_trace, example_id from source.outputs where status = 'failed'
    union all
    select experiment_id, evaluator as what, error, error_trace, example_id from source.judgements
    where subject_kind <> 'pair' and status = 'failed' and coalesce(error_kind, '') <> 'no_output'
) f join source.experiments e using (experiment_id)
where is_one_of(experiment_id, $1)
group by all order by n desc, e.name, what, error limit 10
"""
