"""Quantiles and tail probabilities against integration, the standard library and enumeration."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from evalflows.stats.proportions import normal_quantile, t_interval, t_p_value, t_quantile

ROOT = Path(__file__).parent.parent.parent


def test_scipy_is_loaded_late_and_only_its_compiled_functions() -> None:
    code = """
import sys, evalflows.stats
from evalflows.stats.proportions import special_functions
assert "scipy" not in sys.modules
ours = special_functions()
assert not {"numpy.random", "numpy.ma", "scipy._lib._array_api"} & sys.modules.keys()
import scipy
from scipy import special
assert special.expit(0) == 0.5, "others find what they ask for"
from scipy.special import *
from scipy import stats
names = "betainc", "betaincc", "betaincinv", "bdtr", "log_ndtr", "nctdtr", "ndtr", "ndtri", "stdtr", "stdtrit"
assert all(getattr(ours, name) is getattr(scipy.special, name) is getattr(special, name) for name in names)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("confidence_level", [0.01, 0.5, 0.9, 0.95, 0.99, 0.999999])
def test_the_normal_quantile_matches_the_standard_library(confidence_level: float) -> None:
    assert normal_quantile(confidence_level) == pytest.approx(
        NormalDist().inv_cdf((1 + confidence_level) / 2), abs=1e-9
    )


def test_the_t_quantile_has_the_requested_probability(t_probability: Callable[[Any, Any], Any]) -> None:
    rng = np.random.default_rng(4)
    df = np.concatenate([rng.integers(1, 200, 25).astype(float), rng.uniform(2, 60, 25)])
    levels = rng.uniform(0.5, 0.999, 50)
    quantiles = [
        t_quantile(confidence_level, one) for confidence_level, one in zip(levels.tolist(), df.tolist(), strict=True)
    ]
    assert t_probability(quantiles, df) == pytest.approx(levels, abs=1e-9)


def test_the_t_p_value_is_the_probability_outside(t_probability: Callable[[Any, Any], Any]) -> None:
    rng = np.random.default_rng(5)
    centres, errors, df = rng.normal(size=50), rng.exponential(size=50) + 0.1, rng.integers(1, 200, 50)
    result = [t_p_value(*value, df=k) for *value, k in zip(centres.tolist(), errors.tolist(), df.tolist(), strict=True)]
    assert result == pytest.approx(1 - t_probability(centres / errors, df), abs=1e-9)


def test_an_interval_ends_where_p_is_one_minus_the_level() -> None:
    low, high = t_interval(3.0, 2.0, df=7, confidence_level=0.9)
    assert [t_p_value(3.0 - end, 2.0, df=7) for end in (low, high)] == pytest.approx([0.1, 0.1])
