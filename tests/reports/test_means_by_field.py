"""What one asks first of one experiment: which values of a field do worst; and of two, in which slices they depart."""

import json

import numpy as np
from click.testing import CliRunner
from past import Past
from scipy.stats import binomtest

from evalflows import ExperimentResult
from evalflows.analysis.changes import DepartingSlice, SliceSearch
from evalflows.cli.main import cli
from evalflows.reports.slices import slice_cells, where_lines


def test_one_experiment_says_which_values_of_a_field_do_worst() -> None:
    topics = [*["refunds"] * 10, *["travel"] * 20, *["billing"] * 20, *["other"] * 5, *["more"] * 5]
    past = Past(fields=[{"metadata": {"topic": topic, "id": place}} for place, topic in enumerate(topics)])
    right = np.arange(60) % 2 == 0
    right[:10] = False
    for name in ("one", "two"):
        past.experiment({"right": right}, yes_no=["right"], name=name)
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["show", "one"]).stdout
    (line,) = [one for one in shown.splitlines() if one.startswith("right by ")]
    first = "right by metadata.topic: refunds 0 of 10 [0.00, 0.28], "
    assert line.startswith(first) and line.endswith(", 1 better"), line
    interval = binomtest(10, 20).proportion_ci(0.95, method="wilson")
    assert f"travel 10 of 20 [{interval.low:.2f}, {interval.high:.2f}]" in line, "as of the whole experiment"
    document = json.loads(CliRunner().invoke(cli, ["show", "one", "--format", "json"]).stdout)
    assert document["by_field"] == [line]
    assert ExperimentResult("one").to_pandas()["metadata.topic"].value_counts()["refunds"] == 10


def test_of_several_experiments_nothing_is_said_of_fields() -> None:
    past = Past(fields=[{"metadata": {"topic": "ab"[place % 2]}} for place in range(20)])
    for name in ("one", "two"):
        past.experiment({"right": np.arange(20) % 3 == 0}, yes_no=["right"], name=name, run_group="together")
    assert "by metadata" not in CliRunner().invoke(cli, ["show", "together"]).stdout


def departing(name: str, difference: float, *, low: float, high: float, is_worse: bool = True) -> DepartingSlice:
    return DepartingSlice(
        candidate_experiment_id="exp-1",
        metric="right",
        slice=name,
        where="",
        n_examples=50,
        difference=difference,
        difference_elsewhere=0.3,
        low=-0.6,
        high=-0.1,
        p_adjusted=0.01,
        is_worse=is_worse,
        is_loss=difference < 0,
        difference_low=low,
        difference_high=high,
    )


def test_a_slice_is_called_worse_only_if_its_own_interval_says_so_and_others_are_named() -> None:
    found = [
        departing("a", -0.2, low=-0.3, high=-0.1),
        departing("b", -0.1, low=-0.3, high=0.1),
        *(departing(name, 0.1, low=0.05, high=0.15) for name in "cdefg"),
        departing("h", 0.2, low=-0.1, high=0.5, is_worse=False),
    ]
    words = ["worse", "worse than elsewhere", *["gains less"] * 5, "better than elsewhere"]
    assert [slice_cells(one)[-1] for one in found] == words
    search = SliceSearch(
        candidate_experiment_id="exp-1",
        metrics=["right"],
        fields=["split"],
        min_examples=20,
        n_slices=8,
        n_left_out=0,
        found=found,
    )
    _, *lines = where_lines(search)
    assert lines == [
        "worse than elsewhere in a: right -0.20 [-0.30, -0.10] in 50 examples, +0.300 elsewhere "
        "(p adj. of the departure 0.010)",
        "worse than elsewhere in b: right -0.10 [-0.30, +0.10] in 50 examples, +0.300 elsewhere "
        "(p adj. of the departure 0.010)",
        "gains less in c; d; e; and 2 others",
        "better than elsewhere in h",
    ]
