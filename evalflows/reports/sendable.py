"""The one command to run next, by outcome."""

from collections.abc import Sequence

from evalflows.reports.comparison_rows import Overview
from evalflows.reports.decisions import Decision
from evalflows.reports.results import Result
from evalflows.reports.sql_text import shell_text, sql_text
from evalflows.reports.worst_examples import drops_command
from evalflows.specs.experiment import TRIAL
from evalflows.specs.metric_names import MEASURES
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.baselines import approvals

MORE_EXAMPLES = {
    *("no_significant_difference", "interval_includes_bound", "worse_but_maybe_within_margin", "no_spread"),
    *("interval_and_test_disagree", "not_significant_after_adjustment", "too_few", "below_min_examples"),
}
"""Reasons for an open rule that more examples remove."""

FEW_FAILED = 0.05
"""The share of failed answers, or of a metric's missing scores, up to which an experiment is fit to be a baseline."""

RETRIED = {"missing_unbounded", "missing_could_flip", "incomplete", "no_finished_batch"}
"""Reasons that `resume` may remove: it asks again for what failed or was not attempted."""


def after_experiments(
    store: Store,
    results: Sequence[Result],
    decisions: Sequence[Decision],
    *,
    spec: str = "SPEC",
    explained: bool = False,
    compared: Overview | None = None,
    experiments: Sequence[str] | None = None,
) -> str:
    """Return the command that fits the results of experiments and the decisions on them.

    `spec` is the path of the spec file, if it is known. `explained` says that the decisions have just been explained;
    `compared` is the comparison of the experiments' answers, if there is one, and `experiments` are ids, of which some
    may have no result.
    """
    shown = list(experiments or dict.fromkeys(result.experiment_id for result in results))
    if failed := next((decision for decision in decisions if decision.conclusion == "FAIL"), None):
        return _explain(failed, explained)
    if unfinished := _unfinished(store, shown):
        return unfinished
    if undecided := next((one for one in decisions if one.conclusion == "NOT ENOUGH EVIDENCE"), None):
        return _after_open(undecided, spec, explained)
    if decisions:
        return _after_pass(store, decisions[0].candidate_experiment_id)
    return after_comparison(compared) if compared else _without_gate(store, results, shown)


def after_comparison(overview: Overview) -> str:
    """Return the command that fits a comparison: the rest of it, or its pairs."""
    if overview.state != "completed":
        return _after_unfinished(overview.comparison_id, overview.state)
    columns = "example_id, winner, comment, inputs, left_outputs, right_outputs"
    if overview.n_votes is not None:
        columns = "example_id, left_experiment, right_experiment, winner, weight, metadata"
    where = f"comparison_id = {sql_text(overview.comparison_id)}"
    return f"evalflows sql {shell_text(f'select {columns} from pair_outcomes where {where}')}"


def _after_open(decision: Decision, spec: str, explained: bool) -> str:
    codes = {rule.get("reason_code") for rule in decision.rules if rule["outcome"] == "open"}
    if codes & RETRIED:
        return f"evalflows resume {decision.candidate_experiment_id}"
    if codes and codes <= MORE_EXAMPLES:
        return f"evalflows plan {spec}  # how many examples would decide"
    if codes == {"no_baseline"}:
        return f"evalflows baseline approve {decision.candidate_experiment_id}"
    return _explain(decision, explained)


def _explain(decision: Decision, explained: bool) -> str:
    """Return the explanation, or if that has been read the results behind it."""
    candidate = decision.candidate_experiment_id
    return f"evalflows show {candidate} --wide" if explained else f"evalflows explain {decision.decision_id}"


def _after_pass(store: Store, candidate: str) -> str:
    (rows,) = ask(store, ("select tags from experiments where experiment_id = $1", [candidate]))
    is_trial = any(TRIAL in tags for (tags,) in rows)
    if is_trial or any(approval.holds and approval.experiment_id == candidate for approval in approvals(store)):
        return f"evalflows show {candidate} --wide"
    return f"evalflows baseline approve {candidate}"


def _without_gate(store: Store, results: Sequence[Result], shown: Sequence[str]) -> str:
    """Compare the answers of several experiments; make a single one the baseline of those to come, unless many of its
    rows failed or it is significantly worse: then look at these."""
    if len(shown) > 1:
        return f"evalflows compare {' '.join(shown)}"
    (identity,) = shown
    if failures := _failures(store, results, identity):
        return failures
    worse = next((one for one in results if one.experiment_id == identity and one.conclusion == "worse"), None)
    return drops_command(store, worse) if worse else _after_pass(store, identity)


def _failures(store: Store, results: Sequence[Result], experiment: str) -> str | None:
    """Return the query for what failed, if that is more than FEW_FAILED of the answers, or of a metric's scores."""
    query = "select failed > $2 * planned from experiment_overview where experiment_id = $1"
    (((has_failed_answers,),),) = ask(store, (query, [experiment, FEW_FAILED]))
    of_scores = [one for one in results if one.experiment_id == experiment and one.metric not in MEASURES]
    has_failed_scores = any(one.missing > FEW_FAILED * (one.missing + one.scored) for one in of_scores)
    if not (has_failed_answers or has_failed_scores):
        return None
    columns, table = (
        ("example_id, error", "outputs") if has_failed_answers else ("metric, example_id, error", "item_scores")
    )
    where = f"experiment_id = {sql_text(experiment)} and status = 'failed'"
    return f"evalflows sql {shell_text(f'select {columns} from {table} where {where}')}"


def _unfinished(store: Store, experiments: Sequence[str]) -> str | None:
    query = """select experiment_id, state from experiments
               where state <> 'completed' and is_one_of(experiment_id, $1)
               order by list_position($1, experiment_id) limit 1"""
    (rows,) = ask(store, (query, [list(experiments)]))
    return _after_unfinished(*rows[0]) if rows else None


def _after_unfinished(identity: str, state: str) -> str:
    """Return the command for what is not completed: nobody can resume what a process works on."""
    return f"evalflows show {identity}  # it is running" if state == "running" else f"evalflows resume {identity}"
