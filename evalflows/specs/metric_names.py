"""Names of metrics: measures of every run, pass@k, and metrics on a slice."""

import re
from typing import Literal, NamedTuple, get_args

LATENCY = "latency"

TRIAL = "trial"
"""The tag of an experiment that only tries something: baselines, gates and backtests leave it out."""

MIN_EXAMPLES = 20
"""The examples that gates ask for by default."""

LENGTH = "answer_length"  # not `length`, which people call scores

MEASURES = (LATENCY, "cost", "tokens", LENGTH)
"""Built-in metrics of every run, without an evaluator: seconds, USD, input and output tokens, characters. Lower is
better."""

USER = "target: user"
USER_CHECK = "target: user_check"
"""Who makes calls in a conversation besides the target, where others are evaluators: the user, with `stop`, and the
judge of the user."""

SCORE_SUFFIX = "_score"

RETURNED_AS = "returned_as"
"""The field of a score's metadata with the name that its evaluator gave it, if that is the name of a measure."""

PassKind = Literal["pass@", "pass^"]

PASS_K = rf" ({'|'.join(re.escape(kind) for kind in get_args(PassKind))})[0-9]+$"
"""The ending of such a name, as a regular expression for Python and DuckDB."""

_SLICED = re.compile(r"(.+?)@(split|cluster|(?:inputs|metadata|reference_outputs)\.[^@=]+)=(.*)", re.DOTALL)

_SLICE = re.compile(
    r"(split|cluster|(?:inputs|metadata|reference_outputs)\.[^@=\s>'()]+)\s*=\s*"
    r"(?:'([^']+)'|(?!.*\s(?:and|or)\s)([^\s'=()<>](?:[^'=()<>]*[^\s'=()<>])?))",
    re.IGNORECASE,
)


def kept_apart(metric: str) -> str:
    """Return the name of an evaluator's metric: with `_score` if every run has a measure of its name, as `cost`."""
    return f"{metric}{SCORE_SUFFIX}" if metric in MEASURES else metric


def pass_k_name(metric: str, kind: PassKind, k: int) -> str:
    return f"{metric} {kind}{k}"


def base_metric(metric: str) -> str:
    """Return the metric that a pass@k metric is computed from; any other metric is its own base."""
    return re.sub(PASS_K, "", metric)


def is_pass_k(metric: str) -> bool:
    return base_metric(metric) != metric


class SlicedMetric(NamedTuple):
    """A metric on all examples, or on those with a value at a path such as `split` or `metadata.topic`."""

    metric: str
    path: str | None = None  # None for all examples, like `value`
    value: str | None = None  # a text, or as JSON what is not a text

    @property
    def slice(self) -> str | None:
        """The slice in words, `split=hard`; None for all examples."""
        return None if self.path is None else f"{self.path}={self.value}"

    @property
    def name(self) -> str:
        return self.metric if self.path is None else f"{self.metric}@{self.slice}"


def sliced_metric(name: str) -> SlicedMetric:
    """Return the metric and the slice that a rule names. A name such as `precision@k=5` is a metric on all examples."""
    match = _SLICED.fullmatch(name)
    return SlicedMetric(name) if match is None else SlicedMetric(*match.groups())


def slice_named(text: str) -> SlicedMetric | None:
    """Return the slice that a text names, `metadata.topic=billing`, with quotes or without; None for any other text,
    such as a SQL condition."""
    match = _SLICE.fullmatch(text.strip())
    return None if match is None else SlicedMetric("", match[1], match[2] or match[3])


def metric_of(name: str) -> str:
    """Return the metric that a rule names, without its slice."""
    return sliced_metric(name).metric
