"""The one command to run next, by outcome."""

from collections.abc import Sequence

from evalflows.reports.comparison import Overview
from evalflows.reports.decisions import Decision
from evalflows.reports.results import Result
from evalflows.reports.sql_text import shell_text, sql_text
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.baselines import approvals

MORE_EXAMPLES = {
    *("no_significant_difference", "interval_includes_bound", "worse_but_maybe_within_margin", "no_spread"),
    *("interval_and_test_disagree", "not_significant_after_adjustment", "too_few", "below_min_examples"),
}
"""Reasons for an open rule that more examples remove."""

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
    for conclusion in ("FAIL", "NOT ENOUGH EVIDENCE"):
        for decision in decisions:
            if decision.conclusion == conclusion:
                return _after_open(decision, spec, explained) if conclusion != "FAIL" else _explain(decision, explained)
    if unfinished := _unfinished(store, shown):
        return f"evalflows resume {unfinished}"
    if decisions:
        return _after_pass(store, decisions[0].candidate_experiment_id)
    return after_comparison(compared) if compared else _without_gate(store, shown)


def after_comparison(overview: Overview) -> str:
    """Return the command that fits a comparison: the rest of it, or its pairs."""
    if overview.state != "completed":
        return f"evalflows resume {overview.comparison_id}"
    columns = "example_id, winner, comment, inputs, left_outputs, right_outputs"
    where = f"comparison_id = {sql_text(overview.comparison_id)}"
    return f"evalflows sql {shell_text(f'select {columns} from pair_outcomes where {where}')}"


def _after_open(decision: Decision, spec: str, explained: bool) -> str:
    codes = {rule.get("reason_code") for rule in decision.rules if rule["outcome"] == "open"}
    if codes & RETRIED:
        return f"evalflows resume {decision.candidate_experiment_id}"
    if codes and codes <= MORE_EXAMPLES:
        return f"evalflows plan {spec}  # how many examples would decide"
    if codes == {"no_baseline"}:
        return "evalflows baseline approve EXPERIMENT  # the one to compare with"
    return _explain(decision, explained)


def _explain(decision: Decision, explained: bool) -> str:
    """Return the explanation, or if that has been read the results behind it."""
    candidate = decision.candidate_experiment_id
    return f"evalflows show {candidate} --wide" if explained else f"evalflows explain {decision.decision_id}"


def _after_pass(store: Store, candidate: str) -> str:
    if any(approval.holds and approval.experiment_id == candidate for approval in approvals(store)):
        return f"evalflows show {candidate} --wide"
    return f"evalflows baseline approve {candidate}"


def _without_gate(store: Store, shown: Sequence[str]) -> str:
    """Compare the answers of several experiments; make a single one the baseline of those to come."""
    return f"evalflows compare {' '.join(shown)}" if len(shown) > 1 else _after_pass(store, shown[0])


def _unfinished(store: Store, experiments: Sequence[str]) -> str | None:
    query = """select experiment_id from experiments where state <> 'completed' and list_contains($1, experiment_id)
               order by list_position($1, experiment_id) limit 1"""
    (rows,) = ask(store, (query, [list(experiments)]))
    return rows[0][0] if rows else None
