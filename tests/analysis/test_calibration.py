"""Which parts of a composite predict users' thumbs: of production's traces, and of an experiment's runs."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from evalflows.analysis import calibration
from evalflows.analysis.calibration import MOST_CASES, calibrate_by_labels
from evalflows.specs.errors import InputError
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.store import Store

N = 60
COMPOSITE = {"name": "quality", "weights": {"kind": 1, "brief": 1}}


@pytest.fixture
def production(store: Store, make: Callable[..., Any]) -> Store:
    """Traces whose users like kindness, and do not care for brevity."""
    given = {"name": "support", "evaluators": ["contains"], "composites": [COMPOSITE]}
    spec = TraceEvaluationSpec.model_validate(given).model_dump_json()
    store.append("watermarks", "eval-1", "w", [make("watermarks", evaluation_id="eval-1", name="support", spec=spec)])
    rng, scores, thumbs = np.random.default_rng(3), [], []
    for place in range(N):
        kind, brief = rng.uniform(size=2).round(3)
        parts = {"parts": {"kind": kind, "brief": brief}, "unmet_requirement": None}
        subject = {"subject_kind": "trace", "subject_id": f"t{place}"}
        scored = {"metric": "quality", "evaluator": "quality", "status": "scored", "value": 0.5, "turn": None}
        if place:  # the first has no composite
            made = {"judgement_id": f"j{place}", "experiment_id": "eval-1-2026-10-01", "metadata": json.dumps(parts)}
            scores.append(make("judgements", **subject, **scored, **made))
        else:
            other = {"judgement_id": "j", "experiment_id": "eval-1-2026-10-01"}
            scores.append(make("judgements", **subject, **(scored | {"metric": "kind"}), **other))
        for user in range(2):
            value = float(kind + rng.normal(scale=0.1) > 0.5)
            by = {"label_id": f"l{place}{user}", "labeller": f"user {user}", "batch_id": "labels-1"}
            said = {"metric": "thumbs", "source": "feedback", "value": value, "turn": None, "other_run_id": None}
            thumbs.append(make("labels", **subject, **by, **said))
    store.append("judgements", "eval-1-2026-10-01", "p", scores)
    store.append("labels", "labels-1", "p", thumbs)
    return store


def test_the_weights_that_predict_thumbs_and_their_error_out_of_sample(
    production: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = calibrate_by_labels(production, "support", None, "thumbs")
    kind, brief = found.metrics
    assert (found.experiment_id, found.n_cases, found.n_left_out) == ("eval-1", N - 1, 1)
    assert kind.weight is not None and brief.high is not None and kind.weight > 0.8 and brief.high < 0.5
    assert found.agreement is not None and found.agreement_out_of_sample is not None
    assert found.agreement_declared is not None and found.agreement_declared < 0.9
    assert 0.85 < found.agreement_out_of_sample <= found.agreement
    wrong = f"{1 - found.agreement_out_of_sample:.0%} of the pairs are in the wrong order"
    assert "of the pairs of 59 labelled cases are in order by these weights" in found.sentences[0]
    assert found.sentences[1] == f"out of sample, by weights that were fitted to other cases, {wrong}"
    check = calibration.calibration_check(found, "thumbs")
    assert (check.passed, check.n_checked, check.n_unexpected, check.subject_id) == (False, 2, 2, "quality")
    assert "the weight of kind is declared as 0.50, and 0." in (check.message or "")
    monkeypatch.setattr(calibration, "MOST_CASES", 20)
    few = calibrate_by_labels(production, "support", "quality", "thumbs")
    assert (few.n_cases, few.n_left_out) == (20, 1) and MOST_CASES > 20
    with pytest.raises(InputError, match="labels: got none of 'stars' in 'support', wanted numbers, or yes and no"):
        calibrate_by_labels(production, "support", None, "stars")
    with pytest.raises(InputError, match="composite: got 'other', wanted one of quality"):
        calibrate_by_labels(production, "support", "other", "thumbs")


def test_weights_are_not_fitted_to_final_examples(store: Store, make: Callable[..., Any]) -> None:
    spec = {"name": "app", "dataset": {"name": "faq"}, "targets": [{"kind": "recorded", "column": "said"}]}
    judged = {"evaluators": ["contains", "exact_match"], "composites": [COMPOSITE]}
    of = {"experiment_id": "exp-1", "name": "app", "snapshot_id": "snap-1"}
    store.append("experiments", "exp-1", "p", [make("experiments", **of, spec=json.dumps(spec | judged))])
    ids = [f"e{place}" for place in range(N)]
    splits = ["final" if place < 20 else "test" for place in range(N)]
    examples = [
        make("examples", snapshot_id="snap-1", example_id=identity, position=place, split=split)
        for place, (identity, split) in enumerate(zip(ids, splits, strict=True))
    ]
    store.append("examples", "snap-1", "p", examples)
    rng, scores, said = np.random.default_rng(3), [], []
    for place, (identity, split) in enumerate(zip(ids, splits, strict=True)):
        kind, brief = rng.uniform(size=2).round(3)
        liked = brief if split == "final" else kind  # what final examples say is another thing
        parts = json.dumps({"parts": {"kind": kind, "brief": brief}, "unmet_requirement": None})
        scored = {"metric": "quality", "evaluator": "quality", "status": "scored", "value": 0.5, "turn": None}
        one = {"judgement_id": f"j{place}", "subject_kind": "run", "subject_id": f"r{place}", "example_id": identity}
        scores.append(make("judgements", experiment_id="exp-1", **one, **scored, metadata=parts))
        label = {"label_id": f"l{place}", "labeller": "ada", "batch_id": "labels-1", "metric": "helpful"}
        on = {"subject_kind": "run", "subject_id": f"r{place}", "turn": None, "other_run_id": None}
        said.append(make("labels", **on, **label, value=float(liked > 0.5)))
    store.append("judgements", "exp-1", "p", scores)
    store.append("labels", "labels-1", "p", said)
    by_labels = calibrate_by_labels(store, "app", None, "helpful")
    ranks = {identity: -(one.value or 0.0) for identity, one in zip(ids, said, strict=True)}
    by_ranks = calibration.calibrate(store, "exp-1", None, ranks | {"unknown": 1.0})
    for found, n_left_out in ((by_labels, 0), (by_ranks, 1)):
        assert (found.n_cases, found.n_final, found.n_left_out) == (N - 20, 20, n_left_out)
        assert found.agreement == 1 and (found.metrics[0].weight or 0) > 0.8
    with pytest.raises(InputError, match=r"got 0 ranked cases that have it, wanted more \(20 are of final examples"):
        calibration.calibrate(store, "exp-1", None, dict.fromkeys(ids[:20], 1.0))
