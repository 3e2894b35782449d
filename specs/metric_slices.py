"""Slices of a metric: `contains@split=hard` is the metric `contains` on the examples whose split is `hard`."""

import re
from typing import NamedTuple

_SLICED = re.compile(r"(.+?)@(split|cluster|(?:inputs|metadata|reference_outputs)\.[^@=]+)=(.*)", re.DOTALL)


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


def metric_of(name: str) -> str:
    """Return the metric that a rule names, without its slice."""
    return sliced_metric(name).metric
