"""Names of metrics: the built-in ones, and those computed from repetitions, as `right pass@2` is from `right`."""

import re
from typing import Literal, get_args

LATENCY = "latency"

MEASURES = (LATENCY, "cost", "tokens", "length")
"""Built-in metrics of every run, without an evaluator: seconds, USD, input and output tokens, characters. Lower is
better."""

SCORE_SUFFIX = "_score"

RETURNED_AS = "returned_as"
"""The field of a score's metadata with the name that its evaluator gave it, if that is the name of a measure."""

PassKind = Literal["pass@", "pass^"]

PASS_K = rf" ({'|'.join(re.escape(kind) for kind in get_args(PassKind))})[0-9]+$"
"""The ending of such a name, as a regular expression for Python and DuckDB."""


def kept_apart(metric: str) -> str:
    """Return the name of an evaluator's metric: with `_score` if every run has a measure of its name, as `length`."""
    return f"{metric}{SCORE_SUFFIX}" if metric in MEASURES else metric


def pass_k_name(metric: str, kind: PassKind, k: int) -> str:
    return f"{metric} {kind}{k}"


def base_metric(metric: str) -> str:
    """Return the metric that a pass@k metric is computed from; any other metric is its own base."""
    return re.sub(PASS_K, "", metric)


def is_pass_k(metric: str) -> bool:
    return base_metric(metric) != metric
