"""What one asks first of one experiment: which values of a field do worst."""

import json

import numpy as np
from click.testing import CliRunner
from past import Past
from scipy.stats import binomtest

from evalflows import ExperimentResult
from evalflows.cli.main import cli


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
