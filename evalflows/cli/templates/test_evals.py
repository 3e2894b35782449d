"""The evaluation as tests. Each checks one metric of the candidate; a failure shows the worst answers."""

import pytest


@pytest.fixture(scope="module")
def candidate(evalflows_run):
    """Run the experiment once, for all tests of this file."""
    return evalflows_run("evals/experiment.yaml")["candidate"]


# `sure=False` compares the mean over the five examples. With more of them, remove it and `min_examples`: then even the
# lower end of the mean's confidence interval must reach the value.
def test_answers_are_right(candidate, assert_at_least):
    assert_at_least("contains", 0.8, experiment=candidate, sure=False, min_examples=5)


def test_answers_are_brief(candidate, assert_at_least):
    assert_at_least("brief", 0.8, experiment=candidate, sure=False, min_examples=5)
