"""Student's t without scipy, by integration and bisection, and checks of every result."""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import pytest


class AddedResult(NamedTuple):
    mean: float
    error: float
    weight: float
    design_effect: float


NODES, WEIGHTS = np.polynomial.legendre.leggauss(300)


def central_t(t: Any, df: Any) -> Any:
    """P(|T| <= t), for arrays of one shape. With T = sqrt(df) tan(angle) the density is cos(angle) ** (df - 1) / B."""
    t, df = np.asarray(t, dtype=float), np.asarray(df, dtype=float)
    angle = np.arctan(np.abs(t) / np.sqrt(df))
    heights = np.cos(angle[..., None] * (NODES + 1) / 2) ** (df[..., None] - 1)
    log_gamma = np.vectorize(math.lgamma)
    whole = np.exp(log_gamma(0.5) + log_gamma(df / 2) - log_gamma(df / 2 + 0.5)) / 2
    return angle / 2 * (heights @ WEIGHTS) / whole


def quantile_of_t(confidence_level: Any, df: Any) -> Any:
    """Return t with P(|T| <= t) = level, by bisection; arrays of one shape, quantiles up to 1000."""
    low, high = np.zeros_like(np.asarray(df, dtype=float)), np.full_like(np.asarray(df, dtype=float), 1000.0)
    for _ in range(60):
        middle = (low + high) / 2
        below = central_t(middle, df) < confidence_level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def sandwich(values: Any, clusters: Sequence[int]) -> float:
    """Return the cluster-robust standard error (CR1) of a regression on a constant, by matrices."""
    n, k = len(values), 1
    x = np.ones((n, k))
    bread = np.linalg.inv(x.T @ x)
    residuals = np.asarray(values) - x @ (bread @ x.T @ np.asarray(values))
    together = np.equal.outer(np.asarray(clusters), np.asarray(clusters))
    meat = x.T @ (np.outer(residuals, residuals) * together) @ x
    g = len(set(clusters))
    return math.sqrt(g / (g - 1) * (n - 1) / (n - k) * (bread @ meat @ bread)[0, 0])


def with_two_added(values: Any, clusters: Sequence[int], added: Any, few: float, largest: float) -> AddedResult:
    """Return the mean, CR1 error and weight of a weighted regression on a constant, after two values were added.

    Their weight is the design effect, more if few values are rare. The matrices are those of all values.
    """
    n, g = len(values), len(set(clusters))
    variance = float(np.var(values)) / n
    effect = max(sandwich(values, clusters) ** 2 / variance if variance else 1.0, g / n)
    rare = min(np.sum(values), n - np.sum(values)) if added[0] == 0 else np.count_nonzero(values)
    sizes = [clusters.count(cluster) for cluster in clusters]
    cap = largest * sum(sizes) / n
    weight = max(effect, 1.0)
    weight = max(weight, min(cap, weight * (1 + (few * weight / rare) ** 2) if rare else cap))
    weights = np.diag([1.0] * n + [weight, weight])
    y, x, together = np.array([*values, *added]), np.ones((n + 2, 1)), np.eye(n + 2)
    together[:n, :n] = np.equal.outer(np.asarray(clusters), np.asarray(clusters))
    bread = np.linalg.inv(x.T @ weights @ x)
    mean = (bread @ x.T @ weights @ y)[0]
    scores = weights @ (y - mean)
    squared = bread @ x.T @ (np.outer(scores, scores) * together) @ x @ bread
    return AddedResult(float(mean), math.sqrt(g / (g - 1) * squared[0, 0]), weight, effect)


def check_plain(result: Any) -> None:
    """Assert plain finite numbers, and an interval with its ends in order or a reason."""
    for field in fields(result):
        value = getattr(result, field.name)
        assert type(value) in (float, int, str, bool, type(None)), f"{field.name} is {type(value)}"
        assert not isinstance(value, float) or math.isfinite(value), f"{field.name} is {value}"
    assert (result.low is None) == (result.high is None) == (result.reason is not None)
    if result.low is not None:
        assert result.low <= result.high


@pytest.fixture
def t_probability() -> Callable[[Any, Any], Any]:
    return central_t


@pytest.fixture
def t_bisected() -> Callable[[Any, Any], Any]:
    return quantile_of_t


@pytest.fixture
def sandwich_error() -> Callable[[Any, Sequence[int]], float]:
    return sandwich


@pytest.fixture
def two_added() -> Callable[..., Any]:
    return with_two_added


@pytest.fixture(scope="session")
def assert_plain() -> Callable[[Any], None]:
    return check_plain
