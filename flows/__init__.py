"""What happens, in order. `from flows import evaluate` is the way in from Python."""

import os

# Before Prefect is imported: nothing is reported to anyone, and a program's own output is not drowned in its log.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "WARNING")

from flows.api import aevaluate, evaluate, gate, run
from flows.backtesting import backtest_gate
from flows.check_robustness import calibrate_weights, robustness
from flows.comparing import aevaluate_comparative, compare, evaluate_comparative
from flows.comparison_result import ComparativeResult
from flows.deciding import approve, decide_again, decide_on
from flows.planning import plan
from flows.result import ExperimentResult, ItemOutcome
from tasks.progress import Progress

__all__ = [
    "ComparativeResult",
    "ExperimentResult",
    "ItemOutcome",
    "Progress",
    "aevaluate",
    "aevaluate_comparative",
    "approve",
    "backtest_gate",
    "calibrate_weights",
    "compare",
    "decide_again",
    "decide_on",
    "evaluate",
    "evaluate_comparative",
    "gate",
    "plan",
    "robustness",
    "run",
]
