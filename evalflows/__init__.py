"""Did the LLM application get better, is that real, may we release it? `from evalflows import evaluate` is the way in.

The names below are imported when they are first used, since Prefect takes seconds to load.
"""

from typing import TYPE_CHECKING

import evalflows.specs.tracebacks  # noqa: F401  # it sets how our exceptions are printed
from evalflows.specs.late_names import lazy_names

if TYPE_CHECKING:
    from evalflows.analysis.judge_drift import drift_of
    from evalflows.analysis.plan import sentences_of
    from evalflows.analysis.trace_datasets import TraceDataset
    from evalflows.api.batch_result import BatchEvaluationResult
    from evalflows.api.comparisons import ComparativeResult, aevaluate_comparative, compare, evaluate_comparative
    from evalflows.api.deciding import decide
    from evalflows.api.decisions import approve, decide_again, decide_on
    from evalflows.api.diffs import DiffResult
    from evalflows.api.experiments import aevaluate, evaluate
    from evalflows.api.judging import JudgedAgain, judge_again
    from evalflows.api.planning import backtest_gate, plan, robustness
    from evalflows.api.results import ExperimentResult, ItemOutcome, diff
    from evalflows.api.running import gate, run
    from evalflows.api.trace_datasets import dataset_from_traces
    from evalflows.api.traces import evaluate_traces, run_batched_evaluation
    from evalflows.engine.items import EvaluatorInputs
    from evalflows.reports.progress import Progress

__all__ = [
    "BatchEvaluationResult", "ComparativeResult", "DiffResult", "EvaluatorInputs", "ExperimentResult", "ItemOutcome",
    "JudgedAgain", "Progress", "TraceDataset", "aevaluate", "aevaluate_comparative", "approve", "backtest_gate",
    "compare", "dataset_from_traces", "decide", "decide_again", "decide_on", "diff", "drift_of", "evaluate",
    "evaluate_comparative", "evaluate_traces", "gate", "judge_again", "plan", "robustness", "run",
    "run_batched_evaluation", "sentences_of",
]  # fmt: skip


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "analysis.judge_drift": ("drift_of",),
        "analysis.plan": ("sentences_of",),
        "analysis.trace_datasets": ("TraceDataset",),
        "api.batch_result": ("BatchEvaluationResult",),
        "api.comparisons": ("ComparativeResult", "aevaluate_comparative", "compare", "evaluate_comparative"),
        "api.decisions": ("approve", "decide_again", "decide_on"),
        "api.deciding": ("decide",),
        "api.experiments": ("aevaluate", "evaluate"),
        "api.judging": ("JudgedAgain", "judge_again"),
        "api.planning": ("backtest_gate", "plan", "robustness"),
        "api.diffs": ("DiffResult",),
        "api.results": ("ExperimentResult", "ItemOutcome", "diff"),
        "api.running": ("gate", "run"),
        "api.trace_datasets": ("dataset_from_traces",),
        "api.traces": ("evaluate_traces", "run_batched_evaluation"),
        "engine.items": ("EvaluatorInputs",),
        "reports.progress": ("Progress",),
    },
)
