"""Experiments that were started apart get the verdicts that one run of all of them would give."""

import zipfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported import KEPT
from past import ABSTAINED, FAILED, Past
from store_rows import make_row

from evalflows.analysis.diff import figures_between, stored_pairs, strictest
from evalflows.analysis.differences import MetricReader, estimate_rows, verdicts_of, verdicts_on
from evalflows.analysis.run_together import stored_figures
from evalflows.reports.diff import diff_of
from evalflows.specs.errors import InputError
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.query_process import QueryProcesses
from evalflows.store.records import ExperimentRow, VerdictRow, from_json, to_json
from evalflows.store.sql import connect
from evalflows.store.store import Store

Scores = Mapping[str, Any]
NAMES = ("old", "new", "newer")
N = 60


def verdicts_between(
    reader: MetricReader, baseline: ExperimentRow, candidates: Sequence[ExperimentRow]
) -> list[VerdictRow]:
    pairs = stored_pairs(reader, baseline, candidates)
    return list(verdicts_of(pairs, strictest(pairs)))


def drawn(seed: int, n: int = N, repetitions: int = 1) -> Scores:
    """A yes/no metric and two of numbers, with failures and abstentions."""
    rng = np.random.default_rng(seed)
    shape = (n, repetitions)
    right = (rng.random(shape) < 0.5 + 0.15 * seed).astype(float)
    tone = rng.normal(3 + 0.3 * seed, 1, shape).clip(0, 5)
    right[rng.random(shape) < 0.05], tone[rng.random(shape) < 0.05] = FAILED, ABSTAINED
    return {"right": right, "tone": tone, "points": rng.normal(0, 1, shape)}


DECLARED: dict[str, Any] = {
    "plain": {},
    "declared": {"metrics": {"tone": {"range": [0, 5], "margin": 0.2}, "points": {"higher_is_better": False}}},
    "pass_k": {"metrics": {"right": {"pass_k": [2]}}},
    "benjamini_hochberg": {"adjustment": "benjamini_hochberg", "confidence_level": 0.9},
}


def figures(rows: Sequence[VerdictRow]) -> list[dict[str, Any]]:
    """What verdicts say, without what names them."""
    named = {"verdict_id", "run_group", "candidate_experiment_id", "baseline_experiment_id", "recorded_at"}
    named |= {"family", "n_in_family"}
    return [{name: value for name, value in asdict(row).items() if name not in named} for row in rows]


@pytest.mark.parametrize(
    ("declared", "clusters"), [("plain", None), ("declared", 4), ("pass_k", None), ("benjamini_hochberg", 4)]
)
def test_separate_runs_give_the_verdicts_of_one_run(declared: str, clusters: int | None) -> None:
    repetitions = 3 if declared == "pass_k" else 1
    past = Past([f"c{i // clusters}" for i in range(N)] if clusters else None, repetitions=repetitions)
    targets = [{"kind": "python", "name": name, "function": "bot:answer"} for name in NAMES]
    together, apart = [], []
    for place, name in enumerate(NAMES):
        scores, spec = drawn(place, repetitions=repetitions), past.spec(targets=targets, **DECLARED[declared])
        own = past.spec(name=name, targets=[targets[place]], **DECLARED[declared])
        of: dict[str, Any] = {"target": name, "target_version": name, "yes_no": ["right"]}
        together.append(past.experiment(scores, spec=spec, run_group="together", **of))
        apart.append(past.experiment(scores, spec=own, **of))
    in_one = list(verdicts_on(MetricReader(past.store), together, spec))
    in_several = verdicts_between(MetricReader(past.store), apart[0], apart[1:])
    assert figures(in_several) == figures(in_one)
    assert {row.metric for row in in_one} > {"right", "tone", "points", "answer_length"}
    assert [row.candidate_experiment_id for row in in_several[:2]] == [apart[1].experiment_id] * 2
    with connect() as catalog:
        assert catalog.execute("select count(*) from verdicts").fetchall() == [(0,)], "nothing is stored"


def three(past: Past, **changes: Sequence[Any]) -> list[ExperimentRow]:
    """Three experiments; `changes` are lists of fields, one a candidate."""
    return [
        past.experiment(
            drawn(place), target_version=name, **{field: values[place] for field, values in changes.items()}
        )
        for place, name in enumerate(NAMES)
    ]


def test_p_values_are_adjusted_over_all_candidates_and_metrics() -> None:
    past = Past()
    rows = three(past)
    verdicts = verdicts_between(MetricReader(past.store), rows[0], rows[1:])
    found = [row for row in verdicts if row.p_value is not None and row.metric != "answer_length"]
    p_values = np.array([row.p_value for row in found])
    assert len(p_values) == 6, "two candidates, three metrics"
    order, holm, highest = np.argsort(p_values), np.empty(6), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (6 - rank) * p_values[place]))
        holm[place] = highest
    assert [row.p_adjusted for row in found] == pytest.approx(holm.tolist())
    shown = diff_of(past.store, rows[0].experiment_id, [row.experiment_id for row in rows[1:]], metrics=["right"])
    assert [one.p_adjusted for one in shown.results[1:]] == [
        row.p_adjusted for row in found if row.metric == "right"
    ], "what is shown does not change what is concluded"


@pytest.mark.parametrize(
    ("of_candidates", "wanted"), [(("none", "holm"), "holm"), (("benjamini_hochberg", "none"), "benjamini_hochberg")]
)
def test_of_several_adjustments_the_strictest_holds(of_candidates: tuple[str, str], wanted: str) -> None:
    past = Past()
    rows = three(past, spec=[past.spec(adjustment=one) for one in ("none", *of_candidates)])
    found = verdicts_between(MetricReader(past.store), rows[0], rows[1:])
    assert {row.adjustment for row in found if row.p_adjusted is not None} == {wanted}


@pytest.mark.slow
def test_a_condition_leaves_the_figures_of_its_examples() -> None:
    """As if the experiments had only these examples."""
    hard = [place for place in range(N) if place % 3]
    whole = Past(fields=[{"split": "hard" if place % 3 else "easy"} for place in range(N)])
    rows = three(whole)
    found = figures_between(
        whole.store, rows[0].experiment_id, [row.experiment_id for row in rows[1:]], "split = 'hard'"
    )
    part = Past(fields=[{"split": "hard"} for _ in hard])
    part.rows = list(rows)  # their ids go on
    only = [
        part.experiment(
            {metric: values[hard] for metric, values in drawn(place).items()},
            target_version=name,
            examples=[f"e{place}" for place in hard],
        )
        for place, name in enumerate(NAMES)
    ]
    for row in only:
        part.store.publish("estimates", row.experiment_id, [*estimate_rows(MetricReader(part.store), row, part.spec())])
    assert figures(found.verdicts) == figures(verdicts_between(MetricReader(part.store), only[0], only[1:]))
    assert {*found.n_compared.values()} == {40}
    diffs = [
        diff_of(whole.store, mine[0].experiment_id, [row.experiment_id for row in mine[1:]], where=where)
        for mine, where in ((rows, "split = 'hard'"), (only, None))
    ]
    shown = [[one for one in diff.results if one.is_worth_showing] for diff in diffs]
    for with_condition, without in zip(*shown, strict=True):
        assert with_condition.mean == pytest.approx(without.mean)
        for field in ("metric", "scored", "missing", "not_applicable", "conclusion", "reason"):
            assert getattr(with_condition, field) == getattr(without, field), field
        ends = with_condition.ci_low, with_condition.ci_high
        assert ends == pytest.approx((without.ci_low, without.ci_high))
    counts = [[(one.metric, one.improved, one.regressed, one.same, one.missing) for one in d.counts] for d in diffs]
    assert counts[0] == counts[1]


def test_a_bad_condition_is_one_line() -> None:
    past = Past(fields=[{"split": "easy"}] * 4)
    for name in ("old", "new"):
        past.experiment({"right": np.ones(4)}, target_version=name)
    wrong = (
        ("split = 'none'", "got none of the 4 examples of 'exp-001' that are compared"),
        ("split", "Could not convert string 'easy' to BOOL"),
        ("true; drop table examples", "got SELECT, DROP, wanted one query"),
        ("true) or (true", "syntax error"),
        ("topic = 'x'", 'Referenced column "topic" not found'),
        ("read_text('/etc/passwd') is null", "is a table function"),
        ("exists (from read_text('/etc/hostname'))", "got read_text(), wanted a view"),
    )
    with closing(QueryProcesses(past.store.layout.root)) as queries:
        for where, message in wrong:
            with pytest.raises(InputError, match="where ") as caught:
                diff_of(past.store, "exp-000", ["exp-001"], where=where, rows_of=queries.rows)
            assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_cannot_be_compared_is_refused() -> None:
    past = Past()
    old, new, _ = three(past)
    other = past.experiment({"right": np.ones(3)}, examples=["x", "y", "z"])
    with pytest.raises(InputError, match=r"experiment 'exp-001' \(exp-001\): got it twice, wanted different ones"):
        diff_of(past.store, old.experiment_id, [new.experiment_id, new.experiment_id])
    with pytest.raises(InputError, match="experiments 'exp-000' and 'exp-003': got no common example"):
        diff_of(past.store, old.experiment_id, [new.experiment_id, other.experiment_id])
    with pytest.raises(InputError, match="metric: got 'rigth', wanted right"):
        diff_of(past.store, old.experiment_id, [new.experiment_id], metrics=["rigth"])


def test_the_notes_say_what_else_differs() -> None:
    past = Past()
    old = past.experiment({"right": np.ones(4)}, git_commit="aaaaaaaaaaaa", git_dirty=False)
    new = past.experiment(
        {"right": np.ones(3)}, examples=["e1", "e2", "e9"], judged_by="e2", git_commit="bbbbbbbbbbbb", git_dirty=True
    )
    diff = diff_of(past.store, old.experiment_id, [new.experiment_id])
    found = {note.what: (note.metric, note.refuses, note.text) for note in diff.notes}
    assert found["commit"] == (None, False, "git commit aaaaaaaa then, bbbbbbbb with uncommitted changes now")
    assert found["examples"][2].startswith("different examples: only the 2 shared ones")
    assert found["evaluator"][:2] == ("right", True)
    assert [result.reason_code for result in diff.results if result.metric == "right"] == [None, "not_comparable"]
    assert diff.n_compared == {new.experiment_id: 2}


def test_fields_whose_slices_are_too_small_are_named() -> None:
    n = 60
    fields = [{"metadata": {"topic": f"t{place % 5}", "side": "ab"[place % 2]}} for place in range(n)]
    past = Past(fields=fields)
    old, new = (past.experiment({"right": np.arange(n) % 3 < 2}, target_version=name) for name in ("old", "new"))
    diff = diff_of(past.store, old.experiment_id, [new.experiment_id], slices=True)
    (search,) = diff.searches
    assert "metadata.side" in search.fields and "metadata.topic" not in search.fields
    said = "; not searched: metadata.topic (5 values of 12 examples), wanted 20 of a value, and outside"
    assert diff.search_text(search).endswith(said), diff.search_text(search)


def test_what_a_run_has_compared_is_not_computed_again(tmp_path: Path) -> None:
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(tmp_path)
    store = Store(tmp_path)
    brief, long = (find_experiments(store, name)[0] for name in ("kept-brief", "kept-long"))
    row = store.read("experiments", brief)[0]
    store.publish("experiments", brief, [replace(row, state="incomplete", reason="its budget has run out")])
    found = figures_between(store, long, [brief])
    assert stored_figures(store, long, [brief]) == found
    assert {row.family for row in found.verdicts} == {"gate release", "run"} and found.notes
    for baseline, candidates in ((brief, [long]), (long, [brief, brief]), (long, [long])):
        assert stored_figures(store, baseline, candidates) is None
    spec = from_json(row.spec)
    others = (
        {"spec": to_json({**spec, "quarantine": [{"examples": ["e0"]}]})},
        {"evaluators": row.evaluators.replace('"version":"', '"version":"0')},  # a composite is not comparable then
        {"run_group": "group-2"},
    )
    for changed in others:
        store.publish("experiments", brief, [replace(row, **changed)])
        assert stored_figures(store, long, [brief]) is None, changed
    store.publish("experiments", brief, [row])
    of_judge = {"evaluator": "quality", "model": "judge", "status": "ok", "kind": "chat"}
    for owner in (long, brief):
        call = make_row("calls", call_id=f"of {owner}", experiment_id=owner, system_fingerprint=owner, **of_judge)
        store.publish("calls", owner, [*(before := store.read("calls", owner)), call])
    assert stored_figures(store, long, [brief]) is None, "whether only the judge differs is computed"
    store.publish("calls", brief, before)
    assert stored_figures(store, long, [brief]) is not None
    group = store.read("verdicts", row.run_group)
    store.publish("verdicts", row.run_group, [verdict for verdict in group if verdict.metric != "quality"])
    assert stored_figures(store, long, [brief]) is None, "one would be new"
    assert {row.metric: row.family for row in figures_between(store, long, [brief]).verdicts}["quality"] == "diff"
