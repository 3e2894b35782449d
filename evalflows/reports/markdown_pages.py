"""Pages in Markdown: results of experiments with their table, gate decisions, comparisons; what `evalflows report` can
be asked about, also as JSON and JUnit; and the one command to run next."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from evalflows.reports.candidates import CandidatesOfGate, best_of, candidates_of_gates, passing
from evalflows.reports.confusion import Confusion
from evalflows.reports.decisions import (
    Decision,
    decisions_of,
    failed_decision,
    find_decision,
    with_limits,
    with_manifests,
)
from evalflows.reports.documents import Document, document
from evalflows.reports.experiment_report import ExperimentOverview, ExperimentsReport, experiments_report
from evalflows.reports.formats import MOST_CHARACTERS, code, escaped, markdown_table, where_shown
from evalflows.reports.grids import EFFECT_HEADER, cell_text, effect_cells, effects_title, legend, tables_of
from evalflows.reports.previous_runs import earlier_runs
from evalflows.reports.results import Result, differences_in, results_against, results_of
from evalflows.reports.worst import Worst, WorstExamples, drops_command, item_texts, item_values, plain_text
from evalflows.specs import hints
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.hints import Hint
from evalflows.specs.metric_names import MEASURES, TRIAL
from evalflows.store.layout import quoted
from evalflows.store.queries.conclusions import approvals, conclusions_on
from evalflows.store.queries.continuing import continuing
from evalflows.store.queries.lookup import find_comparison, find_experiments, is_comparison, is_decision, run_groups
from evalflows.store.queries.two_judges import is_again
from evalflows.store.records import FINAL
from evalflows.store.sql import ask
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.analysis.grid import Grid
    from evalflows.reports.comparison import ComparisonReport, Overview
    from evalflows.reports.diff import ExperimentsDiff
    from evalflows.reports.previous_runs import PreviousRun

MORE_EXAMPLES = {
    *("no_significant_difference", "interval_includes_bound", "worse_but_maybe_within_margin", "no_spread"),
    *("interval_and_test_disagree", "not_significant_after_adjustment", "too_few", "below_min_examples"),
}
"""Reasons for an open rule that more examples remove."""

MOST_CANDIDATES = 8
"""Experiments, at most, that a page or a proposed command compares with a baseline."""

FEW_FAILED = 0.05
"""The share of failed answers, or of a metric's missing scores, up to which an experiment is fit to be a baseline."""

RETRIED = {"missing_unbounded", "missing_could_flip", "incomplete", "no_finished_batch"}
"""Reasons that `resume` may remove, as long as the experiment is open: it asks again for what may succeed now."""

_COMPARED = """
select metric, conclusion from current_verdicts
where candidate_experiment_id = $1 and baseline_experiment_id = $2 and slice = 'all'
"""

Address = Callable[..., str | None]
"""The address of a page of the dashboard by its parts, such as `experiments` and an id; None if it is not known."""


def after_experiments(
    store: Store,
    results: Sequence[Result],
    decisions: Sequence[Decision],
    *,
    spec: str | None = None,
    explained: bool = False,
    compared: "Overview | None" = None,
    experiments: Sequence[str] | None = None,
    since: "Sequence[PreviousRun]" = (),
    best: Collection[str] = (),
) -> Hint:
    """Return the command that fits the results of experiments and the decisions on them.

    `spec` is the path of the spec file; None if it is not known. `explained` says that the decisions have just been
    explained; `compared` is the comparison of the experiments' answers, if there is one, and `experiments` are ids, of
    which some may have no result. `since` is how they did against the runs before them, as far as it is known, and
    `best` are those that are the best of several candidates.
    """
    shown = list(experiments or dict.fromkeys(result.experiment_id for result in results))
    if len({decision.candidate_experiment_id for decision in decisions}) > 1 and (good := passing(decisions)):
        decided = next(decision for decision in decisions if decision.candidate_experiment_id == good[0])
        if len(good) == 1:
            return _after_pass(store, good[0], since, spec, decided)
        return next((_after_pass(store, new, since, spec) for new in good if new in best), None) or hints.diff(*good)
    if of_best := [decision for decision in decisions if decision.candidate_experiment_id in best]:
        decisions = of_best
    if failed := next((decision for decision in decisions if decision.conclusion == "FAIL"), None):
        return _explain(failed, explained)
    if unfinished := _unfinished(store, shown):
        return unfinished
    if undecided := next((decision for decision in decisions if decision.conclusion == "NOT ENOUGH EVIDENCE"), None):
        return _after_open(store, undecided, spec, explained, since)
    hidden = next((decision for decision in decisions if decision.where and not explained), None)
    if hidden is not None:  # a slice got worse
        return hints.explain(hidden.decision_id)
    if decisions:
        return _after_pass(store, decisions[0].candidate_experiment_id, since, spec, decisions[0])
    if shown and is_again(store, shown[0]):
        return hints.judged_again(shown[0])
    return after_comparison(store, compared) if compared else _without_gate(store, results, shown, since, spec)


def after_diff(store: Store, diff: "ExperimentsDiff") -> Hint | None:
    """Return the command that fits a diff: where it got worse, how many examples it needs, or to approve what got only
    better and passed a gate. None if the answers are the same: more examples would not change that."""
    judged = [result for result in diff.results if result.baseline and result.metric not in MEASURES]
    baseline, candidate = diff.baseline.experiment_id, diff.candidates[0].experiment_id
    if worse := next((result for result in judged if result.conclusion == "worse"), None):
        from evalflows.analysis.slice_search import MIN_EXAMPLES  # late: the analysis is slow to import

        if not diff.searches and diff.n_compared[worse.experiment_id] >= 2 * MIN_EXAMPLES:
            return hints.diff(baseline, worse.experiment_id, slices=True)
        return hints.show_worst(worse.experiment_id, [worse.metric], baseline)
    if any(result.conclusion == "better" for result in judged) and len(diff.candidates) == 1:
        decided = {*conclusions_on(store, [candidate]).get(candidate, {}).values()}
        return _after_pass(store, candidate, (), None) if decided == {"PASS"} else hints.show_all(candidate)
    if any(note.what == "answers" for note in diff.notes):
        return None
    is_open = any(result.conclusion == "not_enough_evidence" for result in judged)
    return hints.plan(candidate) if is_open else hints.show_all(candidate)


def after_comparison(store: Store, overview: "Overview") -> Hint:
    """Return the command that fits a comparison: the rest of it, or its pairs."""
    if overview.state != "completed":
        return _after_unfinished(store, overview.comparison_id, overview.state)
    if is_again(store, overview.comparison_id):
        return hints.judged_again(overview.comparison_id)
    columns = "example_id, winner, comment, inputs, left_outputs, right_outputs"
    if overview.n_votes is not None:
        columns = "example_id, left_experiment, right_experiment, winner, weight, metadata"
    where = f"comparison_id = {quoted(overview.comparison_id)}"
    return hints.sql(f"select {columns} from pair_outcomes where {where}")


def _after_open(
    store: Store, decision: Decision, spec: str | None, explained: bool, since: "Sequence[PreviousRun]"
) -> Hint:
    codes = {rule.reason_code for rule in decision.rules if rule.outcome == "open"}
    candidate = decision.candidate_experiment_id
    if codes & RETRIED:
        is_final = store.is_sealed("experiments", candidate)
        again = _failed_rows(store, candidate) if is_final else continuing(store, candidate)
        return again or _explain(decision, explained)
    if (
        decision.baseline_experiment_id and not decision.n_shared
    ):  # other examples than the baseline's: more do not help
        return hints.gate(spec or "SPEC") if _has_final_to_run(store, candidate) else _explain(decision, explained)
    if codes and codes <= MORE_EXAMPLES:
        return hints.plan(spec or candidate)
    if codes == {"no_baseline"}:
        return _after_pass(store, candidate, since, spec)
    return _explain(decision, explained)


def _explain(decision: Decision, explained: bool) -> Hint:
    """Return the explanation, or if that has been read the results behind it."""
    return hints.show_all(decision.candidate_experiment_id) if explained else hints.explain(decision.decision_id)


def _after_pass(
    store: Store, candidate: str, since: "Sequence[PreviousRun]", spec: str | None, decision: Decision | None = None
) -> Hint:
    """Approve the experiment, unless a gate says FAIL of it, or it already is the baseline, is a trial, or is worse
    than what there was before: then look at the difference; as also if its gate compares with a target of the run or
    with production, whatever is approved. Of a dataset with final examples, these are run first."""
    if (failed := failed_decision(store, candidate)) is not None:
        return hints.explain(failed.decision_id)
    (rows,) = ask(store, (_OF_PASSED, [candidate, decision and decision.baseline_experiment_id]))
    held = {approval.name: approval.experiment_id for approval in approvals(store) if approval.holds}
    if any(TRIAL in tags for tags, _, _ in rows) or candidate in held.values():
        return hints.show_all(candidate)
    before = [*(held.get(name) for _, name, _ in rows), earlier_runs(store, [candidate]).get(candidate)]
    better = next((old for old in dict.fromkeys(before) if old and _is_worse(store, candidate, old, since)), None)
    if better:
        return hints.diff(better, candidate)
    if _has_final_to_run(store, candidate):
        return hints.gate(spec or "SPEC")
    if decision and decision.baseline and not decision.baseline_experiment_id:  # production
        return hints.show_all(candidate)
    if decision and decision.baseline_experiment_id and any(is_beside for _, _, is_beside in rows):
        return hints.diff(decision.baseline_experiment_id, candidate)
    return hints.approve(candidate)


_OF_PASSED = """
select e.tags, e.spec ->> 'name', exists (
    select 1 from source.experiments b where b.experiment_id = $2 and b.run_group = e.run_group
)
from source.experiments e where e.experiment_id = $1
"""


def _has_final_to_run(store: Store, experiment: str) -> bool:
    """Return whether an experiment's dataset has final examples that it has not run."""
    return bool(ask(store, (_HAS_FINAL_TO_RUN, [experiment, FINAL]))[0])


_HAS_FINAL_TO_RUN = """
select 1 from source.experiments e
join datasets d on d.name = e.dataset_name join source.examples x on x.snapshot_id = d.snapshot_id
where e.experiment_id = $1 and x.split = $2 and x.example_id not in (
    select example_id from source.examples where snapshot_id = e.snapshot_id
)
limit 1
"""


def _is_worse(store: Store, candidate: str, other: str, since: "Sequence[PreviousRun]") -> bool:
    """Return whether a metric of an evaluator is significantly worse than in another experiment: by the verdicts that
    count, if its run or a gate compared the two."""
    (verdicts,) = ask(store, (_COMPARED, [candidate, other]))
    if verdicts:
        return any(conclusion == "worse" for metric, conclusion in verdicts if metric not in MEASURES)
    from evalflows.reports.previous_runs import previous_runs  # late: the analysis is slow to import

    pair = (candidate, other)
    known = [run for run in since if (run.experiment_id, run.previous_experiment_id) == pair]
    return any(metric.conclusion == "worse" for run in known or previous_runs(store, [pair]) for metric in run.metrics)


def _without_gate(
    store: Store, results: Sequence[Result], shown: Sequence[str], since: "Sequence[PreviousRun]", spec: str | None
) -> Hint:
    """Compare several experiments; make a single one the baseline of those to come, unless many of its rows failed or
    it is significantly worse: then look at these."""
    if len(shown) > 1 + MOST_CANDIDATES:
        return hints.show_all(run_groups(store, shown)[0])
    if len(shown) > 1:
        baselines = {result.baseline_experiment_id for result in results}
        return hints.diff(*sorted(shown, key=lambda identity: identity not in baselines))
    (identity,) = shown
    if has_many_failures(store, results, identity) and (failed := _failed_rows(store, identity)):
        return failed
    worse = next(
        (result for result in results if result.experiment_id == identity and result.conclusion == "worse"), None
    )
    return drops_command(store, worse) if worse else _after_pass(store, identity, since, spec)


def has_many_failures(store: Store, results: Sequence[Result], experiment: str) -> bool:
    """Return whether more than FEW_FAILED of the answers, or of a metric's scores, failed."""
    query = "select failed > $2 * planned from experiment_overview where experiment_id = $1"
    with store.reading(only={"experiment_id": [experiment]}):
        (((has_failed_answers,),),) = ask(store, (query, [experiment, FEW_FAILED]))
    of_scores = [result for result in results if result.experiment_id == experiment and result.metric not in MEASURES]
    return has_failed_answers or any(score.missing > FEW_FAILED * (score.missing + score.scored) for score in of_scores)


def _failed_rows(store: Store, experiment: str) -> Hint | None:
    """Return the query for the failed answers of an experiment, else for its failed scores; None without any."""
    where = f"experiment_id = {quoted(experiment)} and status = 'failed'"
    for table, columns in (("outputs", "example_id, error"), ("item_scores", "metric, example_id, error")):
        (found,) = ask(store, (f"select 1 from {table} where {where} limit 1", []))
        if found:
            return hints.sql(f"select {columns} from {table} where {where}")
    return None


def _unfinished(store: Store, experiments: Sequence[str]) -> Hint | None:
    query = """select experiment_id, state from experiments
               where state <> 'completed' and is_one_of(experiment_id, $1)
               order by list_position($1, experiment_id) limit 1"""
    (rows,) = ask(store, (query, [list(experiments)]))
    return _after_unfinished(store, *rows[0]) if rows else None


def _after_unfinished(store: Store, identity: str, state: str) -> Hint:
    """Return the command for what is not completed: nobody can resume what a process works on."""
    if state == "running":
        return hints.watch(identity)
    return continuing(store, identity) or hints.show_all(identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """Decisions, and a report for each pair of a candidate and its baseline."""

    decisions: Sequence[Decision]
    reports: Sequence[ExperimentsReport]
    candidates: Sequence[Decision | CandidatesOfGate]  # the decisions, those of one gate on several together
    calls_made: int | None  # model calls of this run; None if nothing was run
    next_command: Hint | None
    incomplete: str | None  # why the run did not finish; None if it did

    @property
    def experiments(self) -> list[ExperimentOverview]:
        """The experiments, each once."""
        return [
            *{
                experiment.experiment_id: experiment for report in self.reports for experiment in report.experiments
            }.values()
        ]

    @property
    def document(self) -> Document:
        """What `gate --format json` prints."""
        is_known = not any(experiment.has_unrecorded for experiment in self.experiments)
        calls_made = self.calls_made if is_known else None
        return document(self.reports, candidates=self.candidates, calls_made=calls_made, next_command=self.next_command)


def gate_report(
    store: Store,
    decisions: Sequence[Decision],
    made: Mapping[str | None, int] | None = None,
    *,
    spec: str | None = None,
    incomplete: str | None = None,
) -> GateReport:
    """Return the report of decisions; `made` are the model calls of this run by experiment, also those of experiments
    that no decision is about."""
    decisions = with_manifests(store, with_limits(store, decisions))
    by_baseline = grouped((decision.baseline_experiment_id, decision) for decision in decisions)
    reports = [_report_on(store, baseline, group) for baseline, group in by_baseline.items()]
    results = [result for report in reports for result in report.results]
    candidates = candidates_of_gates(store, decisions)
    return GateReport(
        decisions=decisions,
        reports=reports,
        candidates=candidates,
        calls_made=None if made is None else sum(made.values()),
        next_command=after_experiments(store, results, decisions, spec=spec, best=best_of(candidates)),
        incomplete=incomplete,
    )


def _report_on(store: Store, baseline: str | None, decisions: Sequence[Decision]) -> ExperimentsReport:
    """Return the report of a baseline and all candidates that were compared with it."""
    of_candidates = grouped((decision.candidate_experiment_id, decision.decision_id) for decision in decisions)
    found = [result for pair in of_candidates.items() for result in results_against(store, pair[0], baseline, pair[1])]
    by_metric: dict[str, list[Result]] = {}
    for result in found:
        of_metric, key = by_metric.setdefault(result.metric, []), (result.experiment_id, result.evaluator)
        if key not in [(other.experiment_id, other.evaluator) for other in of_metric]:
            of_metric.append(result)
    results = [result for of_metric in by_metric.values() for result in of_metric]
    ids = dict.fromkeys([*filter(None, [baseline]), *of_candidates])
    return experiments_report(store, ids, results, decisions)


def nowhere(*parts: str) -> None:
    """No page has an address."""


def gate_page(report: GateReport, address: Address | None = nowhere) -> str:
    """Return the page of a gate run: the decisions, then a table for each candidate and its baseline.

    Without an `address`, it names no command: what it shows is not kept.
    """
    parts = [f"**Incomplete:** {escaped(report.incomplete)}"] if report.incomplete else []
    parts += [
        f"**{escaped(candidate.standing)}**"
        for candidate in report.candidates
        if isinstance(candidate, CandidatesOfGate)
    ]
    parts.append(decisions_page(report.decisions, address))
    for single in report.reports:
        parts.append(_results_of(single, address))
    return "\n\n".join(parts) + "\n"


def experiments_page(report: ExperimentsReport, address: Address = nowhere) -> str:
    """Return the page of experiments: their results, and the decisions on them."""
    parts = [_results_of(report, address), decisions_page(report.decisions, address)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _results_of(report: ExperimentsReport, address: Address | None) -> str:
    identity = report.experiments[-1].experiment_id
    if address is None:
        return results_page(None, report)
    page = address("experiments", identity)
    results = results_page(identity, report, page=page)
    return f"{results}\n\n{worst_part(report.worst)}" if report.worst else results


def results_page(
    reference: str | None,
    report: ExperimentsReport,
    links: Sequence[str] = (),
    page: str | None = None,
    *,
    quotes_data: bool = True,
) -> str:
    """Return the page of experiments: the verdicts and remarks, a table of every metric and system, what each
    experiment cost, and `links` in Markdown.

    `reference` means them in the shell (None: nothing does), and `page` is their address in the dashboard. A page that
    does not quote data has errors without their texts.
    """
    header = ("system", "metric", "mean", "interval", "difference", "p", "p adjusted", "verdict", "missing", "n")
    differences = differences_in(report.results)
    rows = [_cells(result, differences) for result in report.results if result.is_worth_showing]
    table = markdown_table(header, rows)
    said = [*report.sentences, *report.by_field] if quotes_data else report.sentences_without_data
    parts = [
        "\n".join(f"- {escaped(sentence)}" for sentence in said),
        *(part for grid in report.grids for part in _grid_parts(grid)),
        table,
        *(_confusion_part(confusion) for confusion in report.confusions if quotes_data),
        "\n".join(
            f"- {escaped(experiment.name)}: {escaped(experiment.calls_text)}"
            for experiment in report.experiments
            if experiment.calls_text
        ),
        "\n".join(f"- {link}" for link in links),
        where_shown(hints.show(reference), page) if reference else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _grid_parts(grid: "Grid") -> Iterator[str]:
    """Yield the tables of cells and of main effects."""
    for cells in tables_of(grid):
        rows = [(level, *(" ".join(cell_text(cell, grid.metric)) for cell in row)) for level, row in cells.rows]
        yield f"**{escaped(cells.title)}**\n\n{markdown_table(cells.header, rows)}"
    yield escaped(legend(grid))
    effects = [effect_cells(effect, grid.metric) for effect in grid.effects]
    yield f"{escaped(effects_title(grid))}\n\n{markdown_table(EFFECT_HEADER, effects)}" if effects else ""


def _confusion_part(confusion: Confusion) -> str:
    if not confusion.is_shown_whole:
        return escaped(confusion.errors_text)
    return f"{escaped(confusion.title)}\n\n{markdown_table(*confusion.cells)}"


def _cells(result: Result, differences: Mapping[tuple[str, str], Sequence[str]]) -> list[str]:
    return [
        result.target,
        result.metric,
        result.mean_text,
        result.interval_text,
        ", ".join(differences[result.experiment_id, result.metric]),
        result.p_text,
        result.p_adjusted_text,
        result.verdict_text,
        str(result.missing),
        result.scored_text,
    ]


def worst_part(worst: Worst) -> str:
    """Return the worst examples, and the command that lists all of them, if there is one."""
    parts = [part for examples in worst.examples for part in _worst_examples(examples)]
    command = [f"All of them: {code(worst.command.command)}"] if worst.command else []
    return "\n\n".join([*parts, *command])


def _worst_examples(examples: WorstExamples) -> Iterator[str]:
    compared = examples.baseline is not None
    yield f"### {escaped(examples.heading)}"
    for item in examples.items:
        values = item_values(item, examples.metric, compared=compared)
        texts = [("question", plain_text(item.inputs)), *item_texts(item, compared=compared)]
        lines = [f"- {name}: {escaped(text[:MOST_CHARACTERS])}" for name, text in texts]
        yield "\n".join([f"**{escaped(item.example_id)}** {escaped(values)}", "", *lines])


def decisions_page(decisions: Sequence[Decision], address: Address | None = nowhere) -> str:
    """Return the page of decisions: each with its rule results, and what limits it."""
    parts = []
    for decision in decisions:
        rules = [(rule.outcome, rule.name, rule.text) for rule in decision.rules]
        table = markdown_table(("", "rule", ""), rules)
        limits = "\n".join(f"- {escaped(limit)}" for limit in decision.what_limits)
        limits = f"**Limits of this decision**\n\n{limits}" if limits else ""
        where = "\n".join(f"- {escaped(line)}" for line in decision.where)
        if decision.where_command and address:
            where += f"\n\nExamples of the first: {code(decision.where_command)}"
        heading = f"## {escaped(decision.conclusion)}\n\n{escaped(decision.title)}"
        identity = decision.decision_id
        shown = where_shown(hints.explain(identity), address("decisions", identity)) if address else ""
        parts.append("\n\n".join(part for part in (heading, table, where, limits, shown) if part))
    return "\n\n".join(parts)


def comparison_page(report: "ComparisonReport", address: Address = nowhere) -> str:
    """Return the page of a comparison: its summary, win rates, ranking, judge biases, and the command for more."""
    rates = [
        (
            *(rate.metric, rate.candidate, rate.baseline, rate.what, rate.rate_text),
            *(rate.p_text, rate.p_adjusted_text, rate.verdict_text, *rate.counts),
        )
        for rate in report.win_rates
    ]
    identity = report.overview.comparison_id
    ranking = [(row.metric, row.rank_text, row.experiment, row.rating_text, row.rate_text) for row in report.ranking]
    head = ("metric", "candidate", "baseline", "", "win rate", "p", "p adjusted", "verdict", "wins", "ties", "losses")
    parts = [
        "\n".join(f"- {escaped(sentence)}" for sentence in report.sentences),
        markdown_table((*head, "missing"), rates),
        markdown_table(("metric", "rank", "experiment", "rating", "win rate over all"), ranking),
        "\n".join(f"- {escaped(bias.text)}" for bias in report.known_biases),
        where_shown(hints.show(identity), address("pairwise", identity)),
    ]
    return "\n\n".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedExperiments:
    store: Store
    identities: list[str]

    @property
    def names(self) -> str:
        return ", ".join(experiment.name for experiment in self.report.experiments)

    @property
    def decisions(self) -> list[Decision]:
        return decisions_of(self.store, self.identities)

    @property
    def markdown(self) -> str:
        return experiments_page(self.report)

    @property
    def document(self) -> Document:
        report = self.report
        command = after_experiments(self.store, report.results, report.decisions, experiments=self.identities)
        return document([report], next_command=command)

    @property
    def junit(self) -> str:
        """Raise InputError without a decision."""
        if not (decisions := self.decisions):
            raise InputError("junit: got no decision, wanted an experiment on which a gate has decided")
        from evalflows.reports.junit import junit  # late: it loads the parser of XML

        return junit(with_limits(self.store, decisions))

    @property
    def report(self) -> ExperimentsReport:
        results, decisions = results_of(self.store, self.identities), with_limits(self.store, self.decisions)
        return experiments_report(self.store, self.identities, results, decisions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDecision:
    store: Store
    decision: Decision

    @property
    def markdown(self) -> str:
        return gate_page(gate_report(self.store, [self.decision]))

    @property
    def document(self) -> Document:
        return gate_report(self.store, [self.decision]).document

    @property
    def junit(self) -> str:
        from evalflows.reports.junit import junit  # late: it loads the parser of XML

        return junit(with_limits(self.store, [self.decision]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedComparison:
    store: Store
    identity: str

    @property
    def report(self) -> "ComparisonReport":
        from evalflows.reports.comparison import comparison_report  # late: few references mean a comparison

        return comparison_report(self.store, self.identity)

    @property
    def markdown(self) -> str:
        return comparison_page(self.report) + "\n"

    @property
    def document(self) -> Document:
        report = self.report
        return document([], comparison=report, next_command=after_comparison(self.store, report.overview))

    @property
    def junit(self) -> str:
        raise InputError("junit: got a comparison, wanted a decision, or an experiment on which a gate has decided")


Reported = ReportedExperiments | ReportedDecision | ReportedComparison


def reported(store: Store, reference: str) -> Reported:
    """Return what a reference means. Raise InputError if it means nothing.

    An experiment comes first, by any of its names; then a comparison, then a decision, by its id or its gate's name.
    """
    if is_comparison(store, reference):
        return ReportedComparison(store=store, identity=find_comparison(store, reference))
    if is_decision(store, reference):
        return ReportedDecision(store=store, decision=find_decision(store, reference))
    return ReportedExperiments(store=store, identities=find_experiments(store, reference))
