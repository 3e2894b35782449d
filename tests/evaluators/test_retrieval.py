"""retrieval: its measures are those of trec_eval, and what counts as the same item."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import pytrec_eval
from catalog_rows import rows as rows_of

from evalflows import gate, run
from evalflows.evaluators.retrieval import retrieval
from evalflows.reports.decisions import decisions_named
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.errors import GateFailedError
from evalflows.store.store import Store

K = (1, 3, 5, 20)
TREC = {
    "hit": "success",
    "recall": "recall",
    "precision": "P",
    "ndcg": "ndcg_cut",
    "mrr": "recip_rank",
    "map": "map",
}


def judged(contexts: Any, relevant: Any, **settings: Any) -> dict[str, float | None] | None:
    scores = retrieval({}, {"contexts": contexts}, {"relevant": relevant}, **settings)
    return None if scores is None else {score.key or "": score.value for score in scores}  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(40))
def test_every_measure_is_that_of_trec_eval(seed: int) -> None:
    """Rankings with ties, in trec_eval's order, and with duplicates, which a run of trec_eval cannot have."""
    rng = random.Random(seed)
    documents = [f"d{place}" for place in range(rng.randint(1, 30))]
    grades = {one: rng.choice([0, 0, 1, 1, 2, 3]) for one in rng.sample(documents, rng.randint(1, len(documents)))}
    grades |= {"d0": 2, "never found": 1}
    run = {one: float(rng.randint(0, 4)) for one in documents}
    ranking = sorted(run, key=lambda one: (run[one], one), reverse=True)
    repeated = [*ranking]
    for place in sorted((rng.randrange(len(ranking)) for _ in range(5)), reverse=True):
        repeated.insert(rng.randint(ranking.index(ranking[place]) + 1, len(repeated)), ranking[place])
    for level, settings in ((1, {}), (2, {"min_grade": 2})):
        names = {f"{name}.{','.join(map(str, K))}" if name in ("success", "P", "recall", "ndcg_cut") else name
                 for name in TREC.values()}  # fmt: skip
        theirs = pytrec_eval.RelevanceEvaluator({"q": grades}, names, relevance_level=level).evaluate({"q": run})["q"]
        expected = {
            f"{ours}@{k}" if ours not in ("mrr", "map") else ours: theirs[
                f"{name}_{k}" if ours not in ("mrr", "map") else name
            ]
            for ours, name in TREC.items()
            for k in K
        }
        assert judged(repeated, grades, k=K, **settings) == pytest.approx(expected, abs=1e-9)
    exponential = {one: 2**grade - 1 for one, grade in grades.items()}
    ours, wanted = judged(ranking, grades, gain="exponential"), judged(ranking, exponential)
    assert ours is not None and wanted is not None and ours["ndcg@5"] == pytest.approx(wanted["ndcg@5"], abs=1e-9)


def test_what_the_same_item_is() -> None:
    only: Any = {"measures": ["recall", "mrr", "precision", "ndcg"], "k": 2}
    found = {"recall@2": 1.0, "mrr": 1.0, "precision@2": 0.5, "ndcg@2": 1.0}
    assert judged(["x\u00a0e\u0301\n1", "y"], "x \u00e9 1", **only) == found, "form and white space do not count"
    assert judged([{"id": 7, "text": "…"}, {"id": 8}], [7.0], **only) == found, "as a table with empty cells has ids"
    assert judged(["A", "b"], ["a"], ignore_case=True, **only) == found
    assert judged(["A", "b"], ["a"], **only) == dict.fromkeys(found, 0.0)
    graded = [{"id": "a", "grade": 3}, {"id": "b", "grade": 1}, {"id": "c", "grade": 0}]
    assert judged(["b", "a"], graded, **only) == judged(["b", "a"], {"a": 3, "b": 1}, **only)
    chunks = [{"text": "no use"}, {"text": "The sky is blue.\nGrass is green."}, {"text": "again: Grass is green."}]
    passages = {"sky is blue": 2, "grass  is green": 1, "snow is white": 1}
    held = judged(chunks, passages, by="contains", ignore_case=True, k=[1, 3])
    assert held is not None
    assert (held["recall@1"], held["recall@3"], held["mrr"]) == (0.0, pytest.approx(2 / 3), 0.5)
    assert held["precision@3"] == pytest.approx(2 / 3), "a text that repeats a passage holds it too"
    assert held["map"] == pytest.approx((1 / 2 + 1 / 2) / 3), "both passages at the rank of the first text"
    both = judged([{"text": "a b"}], ["a", "b"], by="contains", k=[5])
    assert both is not None and both["ndcg@5"] == 1.0, "never above the best order"


def test_nothing_relevant_does_not_apply_and_nothing_retrieved_is_0() -> None:
    assert judged(["a"], []) is judged(["a"], None) is judged(["a"], {"a": 0}) is judged(["a"], "") is None
    assert retrieval({}, {"contexts": ["a"]}, None) is None
    assert retrieval({}, {}, {"relevant": ["a"]}, retrieved="inputs.contexts") is None
    for nothing in ([], None):
        assert set((judged(nothing, ["a"]) or {}).values()) == {0.0}
    assert judged(["a"], {"a": 1}, min_grade=2, measures=["mrr", "ndcg"]) == {"mrr": None, "ndcg@5": 1.0}
    (score,) = retrieval({}, {"contexts": ["x"]}, {"relevant": ["a", "b"]}, measures="recall", prefix="r.") or []  # type: ignore[arg-type]
    assert (score.key, score.comment) == ("r.recall@5", 'not in the first 5: "a", "b"')


@pytest.mark.parametrize(
    ("contexts", "relevant", "message"),
    [
        ([{"doc": 1}], ["a"], "retrieved: outputs.contexts: got an item with doc, wanted id, or the path to its field"),
        ([["a"]], ["a"], r"retrieved: outputs.contexts: got \['a'\], wanted an id or a text, or mappings with id"),
        (["a"], [True], "relevant: reference_outputs.relevant: got True, wanted an id or a text"),
        (["a"], {"a": "high"}, "relevant: 'a': got the grade 'high', wanted a number of at least 0"),
        (["a"], {"a": -1}, "got the grade -1"),
    ],
)
def test_items_of_another_type_are_an_error(contexts: Any, relevant: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judged(contexts, relevant)


def spec(tmp_path: Path, rows: list[dict[str, Any]], *, rules: dict[str, Any] | None = None, **args: Any) -> Any:
    """An old search that finds one of two, and a new one that finds both, last."""
    targets = []
    for name, found in (("old", ["x", "a"]), ("new", ["x", "a", "b"])):
        lines = [json.dumps({"id": row["id"], "outputs": {"contexts": found}}) for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
        targets.append({"name": name, "kind": "recorded", "path": str(tmp_path / f"{name}.jsonl")})
    gates = [] if rules is None else [{"name": "release", "baseline": "old", **rules}]
    fields = {"name": "search", "dataset": {"rows": rows}, "targets": targets, "gates": gates}
    return ExperimentSpec.model_validate(fields | {"evaluators": [{"use": "retrieval", "args": args}]})


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_names_with_k_are_metrics_of_gates_slices_and_queries(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"q{place}",
            "inputs": {"question": f"{place}?"},
            "reference_outputs": {"relevant": ["a", "b"]} if place < 40 else {},
            "split": "hard" if place % 2 else "easy",
        }
        for place in range(42)
    ]
    rules = {"non_inferiority": {"recall@3@split=hard": 0.1, "ndcg@3": 0.1}, "superiority": ["recall@3"]}
    with pytest.raises(GateFailedError) as caught:
        gate(spec(tmp_path, rows, rules={**rules, "thresholds": {"recall@1": 0.1}}, k=[1, 3]))
    (decision,) = decisions_named(Store(), caught.value.decisions)
    found = {rule.metric: (rule.outcome, rule.n) for rule in decision.rules}
    assert found == {
        "recall@3@split=hard": ("met", 20),
        "ndcg@3": ("met", 40),
        "recall@3": ("met", 40),
        "recall@1": ("broken", 40),
    }
    counts = (
        "select status, count(*) from item_scores where target = 'new' and metric = 'recall@3' group by 1 order by 1"
    )
    assert rows_of(counts) == [("not_applicable", 2), ("scored", 40)]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"k": [5, 0]}, "k: got 0, wanted a whole number of at least 1"),
        ({"k": 2.5}, "k: got 2.5, wanted a whole number"),
        ({"k": []}, "k: got an empty list"),
        ({"measures": ["recal"]}, "measures: got 'recal', wanted hit, recall"),
        ({"by": "id"}, "by: got 'id', wanted equal, contains"),
        ({"min_grade": 0}, "min_grade: got 0"),
        ({"relevant": "docs"}, "relevant: got 'docs', wanted a path"),
        (
            {"relevant": "metadata.docs"},
            "relevant: no example has 'metadata.docs', wanted a path to the items: inputs.q",
        ),
        ({"retrieved": "inputs.found"}, "retrieved: no example has 'inputs.found'"),
        ({"relevant": "reference_outputs.odd"}, "example 'q1': relevant: reference_outputs.odd: got an item with doc"),
    ],
)
def test_mistakes_are_found_before_the_run(tmp_path: Path, args: dict[str, Any], message: str) -> None:
    rows = [
        {"id": f"q{place}", "inputs": {"q": "?"}, "reference_outputs": {"relevant": "a", "odd": odd}}
        for place, odd in enumerate((["a"], [{"doc": "a"}]))
    ]
    made = spec(tmp_path, rows, **args)
    with pytest.raises(InputError, match=f"evaluator 'retrieval': {re.escape(message)}"):
        run(made)


def test_two_lists_need_a_prefix(tmp_path: Path) -> None:
    made = spec(tmp_path, [{"id": "q", "inputs": {"q": "?"}, "reference_outputs": {"relevant": "a"}}]).model_dump()
    made["evaluators"].append({"use": "retrieval", "name": "second"})
    with pytest.raises(InputError, match=r"evaluator 'second': gives 'hit@5', as 'retrieval' does; wanted a `prefix`"):
        run(ExperimentSpec.model_validate(made))
