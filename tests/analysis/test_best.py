"""evalflows best: the winner of several stored experiments, and what is left out or refused."""

import json

import jsonschema
import numpy as np
from click.testing import CliRunner, Result
from past import Past, passes

from evalflows.cli.main import cli
from evalflows.cli.schema import schema_of

N = 200


def best(*arguments: str, code: int = 0) -> Result:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["best", *arguments])
    assert done.exit_code == code, done.output
    return done


def test_the_best_is_found_and_its_figures_are_corrected() -> None:
    past = Past()
    for number, rate in enumerate((0.3, 0.6, 0.62, 0.61)):
        right = passes(rate, N, seed=number)[:, 0]
        scores = {"right": np.where(np.arange(N) < 2 * number, np.nan, right), "price": np.full(N, 1.0 + number)}
        spec = past.spec(name=f"v{number}", metrics={"price": {"higher_is_better": False}})
        past.experiment(scores, spec=spec, name=f"v{number}")
    ids = [row.experiment_id for row in past.rows]
    found = json.loads(best(*ids, "--metric", "right", "--format", "json").stdout)
    jsonschema.validate(found, schema_of("best"))
    assert (found["n_examples"], found["n_left_out"], found["n_tried"]) == (N - 6, 6, 4)
    means = {one["name"]: (one["mean"], one["may_be_best"]) for one in found["variants"]}
    assert means["v0"][1] is False and {*means} == {"v0", "v1", "v2", "v3"} and found["baseline"] == "v0"
    assert sum(may_be for _, may_be in means.values()) == 3
    gain, mean = found["gain"], found["mean"]
    assert 0 < gain["low"] < gain["corrected"] < gain["naive"] and mean["low"] < mean["corrected"] < mean["naive"]
    assert mean["high"] <= 1
    assert mean["naive"] == max(mean for mean, _ in means.values()) == found["variants"][0]["mean"]
    said = " ".join(best(*ids, "--metric", "right").stdout.split())
    for sentence in found["sentences"]:
        assert " ".join(sentence.split()) in said
    assert "2 others may also be the best (95%)" in said and "uncorrected" in said
    cheap = json.loads(best(*ids, "--metric", "price", "--baseline", ids[3], "--format", "json").stdout)
    assert (cheap["variants"][0]["name"], cheap["gain"]["naive"]) == ("v0", -3.0), "a price is better if it is lower"
    assert cheap["mean"]["corrected"] is None and "its mean is 1.000, and does not vary" in " ".join(cheap["sentences"])
    assert "metric: got none, wanted one of: " in best(*ids, code=2).stderr
    assert "metric: got 'rihgt', wanted right" in best(*ids, "--metric", "rihgt", code=2).stderr
    assert "best: got one experiment" in best(ids[0], code=2).stderr
    past.experiment({"right": passes(0.9, N, seed=9)}, judged_by="e2", name="v9")
    refused = best(*ids, past.rows[-1].experiment_id, "--metric", "right", code=2).stderr
    assert "best: right of v9: " in refused
