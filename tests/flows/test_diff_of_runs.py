"""Runs that were started apart are compared as if one call had started all of them."""

import pytest
from planted_difference import always, often, spec, targets

from evalflows import DiffResult, ExperimentResult, run
from evalflows.specs.errors import InputError

pytestmark = pytest.mark.usefixtures("without_prefect")


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
