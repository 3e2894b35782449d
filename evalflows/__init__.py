"""Did the LLM application get better, is that real, may we release it? `from evalflows import evaluate` is the way in.

The names below are imported when they are first used, since Prefect takes seconds to load.
"""

from typing import TYPE_CHECKING

from evalflows.specs.lazy_names import lazy_names

if TYPE_CHECKING:
    from evalflows.analysis.planning.sentences import sentences_of
    from evalflows.execution.trace_runs import EvaluatorInputs
    from evalflows.flows.api.backtest import backtest_gate
    from evalflows.flows.api.batch_result import BatchEvaluationResult
    from evalflows.flows.api.comparison_result import ComparativeResult
    from evalflows.flows.api.comparisons import aevaluate_comparative, compare, evaluate_comparative
    from evalflows.flows.api.composites import robustness
    from evalflows.flows.api.decisions import approve, decide_again, decide_on
    from evalflows.flows.api.diff_result import DiffResult, diff
    from evalflows.flows.api.experiment_result import ExperimentResult, ItemOutcome
    from evalflows.flows.api.experiments import aevaluate, evaluate, gate, run
    from evalflows.flows.api.planning import plan
    from evalflows.flows.api.trace_datasets import TraceDataset, dataset_from_traces
    from evalflows.flows.api.trace_evaluations import evaluate_traces, run_batched_evaluation
    from evalflows.reports.progress import Progress

__all__ = [
    "BatchEvaluationResult",
    "ComparativeResult",
    "DiffResult",
    "EvaluatorInputs",
    "ExperimentResult",
    "ItemOutcome",
    "Progress",
    "TraceDataset",
    "aevaluate",
    "aevaluate_comparative",
    "approve",
    "backtest_gate",
    "compare",
    "dataset_from_traces",
    "decide_again",
    "decide_on",
    "diff",
    "evaluate",
    "evaluate_comparative",
    "evaluate_traces",
    "gate",
    "plan",
    "robustness",
    "run",
    "run_batched_evaluation",
    "sentences_of",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "analysis.planning.sentences": ("sentences_of",),
        "flows.api.backtest": ("backtest_gate",),
        "flows.api.comparison_result": ("ComparativeResult",),
        "flows.api.comparisons": ("aevaluate_comparative", "compare", "evaluate_comparative"),
        "flows.api.composites": ("robustness",),
        "flows.api.decisions": ("approve", "decide_again", "decide_on"),
        "flows.api.diff_result": ("DiffResult", "diff"),
        "flows.api.experiment_result": ("ExperimentResult", "ItemOutcome"),
        "flows.api.experiments": ("aevaluate", "evaluate", "gate", "run"),
        "execution.trace_runs": ("EvaluatorInputs",),
        "flows.api.batch_result": ("BatchEvaluationResult",),
        "flows.api.planning": ("plan",),
        "flows.api.trace_datasets": ("TraceDataset", "dataset_from_traces"),
        "flows.api.trace_evaluations": ("evaluate_traces", "run_batched_evaluation"),
        "reports.progress": ("Progress",),
    },
)
