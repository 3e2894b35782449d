"""Evaluations as tests: fixtures that run experiments, and assertions about their results."""

from evalflows.pytest_plugin.asserts import EvidenceWarning, assert_at_least, assert_at_most, assert_no_regression

__all__ = ["EvidenceWarning", "assert_at_least", "assert_at_most", "assert_no_regression"]
