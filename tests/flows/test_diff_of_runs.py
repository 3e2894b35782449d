"""Runs that were started apart are compared as if one call had started all of them."""

from typing import Any

import pytest
from catalog_rows import rows
from planted_difference import always, often, seldom, spec, targets

from evalflows import DiffResult, ExperimentResult, diff, run
from evalflows.reports.results import results_of
from evalflows.specs.errors import InputError
from evalflows.specs.metric_names import LATENCY, MEASURES
from evalflows.store.parquet import Store

pytestmark = pytest.mark.usefixtures("prefect_api")

COMPARED = (
    *("metric", "mean", "ci_low", "ci_high", "scored", "missing", "difference", "difference_low", "difference_high"),
    *("p_value", "p_adjusted", "n_pairs", "minimum_detectable_effect", "conclusion", "reason", "reason_code"),
)
FUNCTIONS = {"often": often, "seldom": seldom, "always": always}


def of_candidates(results: Any, baseline: str) -> list[dict[str, Any]]:
    """What a table shows of each candidate and metric but latency.

    The p-values of other measures are adjusted together with that of latency, where it has one.
    """
    return [
        {name: getattr(one, name) for name in COMPARED if one.metric not in MEASURES or name != "p_adjusted"}
        for one in results
        if one.experiment_id != baseline and one.metric != LATENCY
    ]


@pytest.mark.slow
def test_separate_calls_give_the_figures_of_one_call() -> None:
    together = run(spec(targets=targets(**FUNCTIONS)))
    apart = [run(spec(name=name, targets=targets(**{name: one})))[0] for name, one in FUNCTIONS.items()]
    in_one = of_candidates(results_of(Store(), together), together[0])
    before = rows("select count(*) from verdicts")
    found = diff(*apart)
    assert of_candidates(found.report.results, apart[0]) == in_one
    assert {one["conclusion"] for one in in_one if one["metric"] == "exact_match"} == {"better", "worse"}
    assert rows("select count(*) from verdicts") == before, "nothing is stored"
    latencies = [one for one in found.report.results if one.metric == LATENCY and one.experiment_id != apart[0]]
    assert [(one.conclusion, one.reason_code) for one in latencies] == [("not_enough_evidence", "not_side_by_side")] * 2


def test_a_result_compares_itself_with_another() -> None:
    old, new = (
        ExperimentResult(run(spec(name=name, targets=targets(**{name: one})))[0])
        for name, one in (("old", often), ("new", always))
    )
    found = new.compare(old)
    assert isinstance(found, DiffResult)
    assert repr(found) == "DiffResult('new' against 'old': exact_match better)"
    assert str(found).startswith("new against old: better in exact_match +0.25")
    frame = found.to_pandas().set_index("metric")
    assert frame.loc["exact_match", ["baseline_mean", "mean", "difference", "verdict"]].tolist() == [
        0.75,
        1.0,
        0.25,
        "better",
    ]
    examples = found.examples()
    assert set(examples.change) == {"improved"} and len(examples) == 10
    assert examples.iloc[0].baseline_outputs == '{"output":"no idea"}'
    assert found.examples(changes=["regressed"]).empty
    part = new.compare("old", where="example_id < 'q2'")
    assert part.report.n_compared == {new.experiment_id: 12}
    with pytest.raises(InputError, match="got it twice"):
        new.compare(new)
