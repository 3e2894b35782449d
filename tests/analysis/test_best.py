"""evalflows best: the winner of several stored experiments, and what is left out or refused."""

import json

import jsonschema
import numpy as np
from click.testing import CliRunner, Result
from past import ABSTAINED, FAILED, Past, passes

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
        scores = {"right": np.where(np.arange(N) < 2 * number, FAILED, right), "price": np.full(N, 1.0 + number)}
        spec = past.spec(name=f"v{number}", metrics={"price": {"higher_is_better": False}})
        past.experiment(scores, spec=spec, name=f"v{number}")
    ids = [row.experiment_id for row in past.rows]
    found = json.loads(best(*ids, "--metric", "right", "--format", "json").stdout)
    jsonschema.validate(found, schema_of("best"))
    assert (found["n_examples"], found["n_left_out"], found["n_tried"]) == (N, 0, 4)
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


def test_a_missing_value_counts_against_its_own_variant_and_removes_no_example_from_others() -> None:
    past, right = Past(), passes(0.7, N, seed=1)[:, 0]
    better = np.where(np.arange(N) % 5 == 0, True, right)
    silent = np.where(right, 1.0, FAILED)  # every wrong answer fails
    for metrics in ({}, {"right": {"missing": "leave_out"}}):
        for name, scores in (("base", right), ("silent", silent), ("better", better)):
            past.experiment({"right": np.asarray(scores, dtype=float)}, spec=past.spec(metrics=metrics), name=name)
    ids = [row.experiment_id for row in past.rows]
    found = json.loads(best(*ids[:3], "--metric", "right", "--format", "json").stdout)
    of = {one["name"]: one for one in found["variants"]}
    assert found["variants"][0]["name"] == "better" and not of["base"]["may_be_best"]
    assert of["base"]["mean"] == of["base"]["best_case"] == of["silent"]["mean"] == right.mean()
    assert (of["silent"]["best_case"], of["silent"]["may_be_best"]) == (1.0, True), "the failed ones could be right"
    failed = f"{N - right.sum():.0f} of {N} in silent"
    assert f"missing values count at their worst for their own variant: {failed}" in found["sentences"]
    over = json.loads(best(*ids[:3], "--metric", "right", "--baseline", ids[1], "--format", "json").stdout)
    assert over["gain"] is None and any("its gain over silent is unknown" in one for one in over["sentences"])
    past.experiment({"right": np.full(N, FAILED)}, name="nothing")
    none = json.loads(best(past.rows[-1].experiment_id, *ids[:1], "--metric", "right", "--format", "json").stdout)
    means = {one["name"]: (one["mean"], one["best_case"], one["may_be_best"]) for one in none["variants"]}
    assert means == {"base": (right.mean(), right.mean(), True), "nothing": (0.0, 1.0, True)}
    left = json.loads(best(*ids[3:], "--metric", "right", "--format", "json").stdout)
    assert (left["n_examples"], left["n_left_out"]) == (right.sum(), N - right.sum()), "by the declared policy"
    for name in ("some", "all"):
        past.experiment({"grade": np.where(right if name == "some" else True, 3.0 + better, FAILED)}, name=name)
    grades = [row.experiment_id for row in past.rows[-2:]]
    assert "best: grade of some: got " in best(*grades, "--metric", "grade", code=2).stderr, "nothing bounds them"


def test_a_variant_that_abstains_in_some_repetitions_is_not_the_best_for_it() -> None:
    """As in a gate: the metric applies to fewer of its answers than of the others'."""
    past = Past(repetitions=4)
    for name, wrong in (("plain", 0.0), ("abstains", ABSTAINED), ("fails", FAILED)):
        right = passes(0.75 if name == "plain" else 0.5, N, seed=1, repetitions=4)
        past.experiment({"right": np.where(right, 1.0, wrong)}, name=name)
    ids = [row.experiment_id for row in past.rows]
    found = json.loads(best(*ids, "--metric", "right", "--format", "json").stdout)
    first, *others = found["variants"]
    assert first["name"] == "plain" and first["mean"] > 0.7
    assert all(abs(one["mean"] - 0.5) < 0.05 and one["best_case"] == 1 for one in others)
