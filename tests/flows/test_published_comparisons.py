"""Comparisons that others published, replayed from their verdicts: what is kept comes to the figures that they gave."""

import gzip
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

from evalflows import evaluate, run
from evalflows.specs import DatasetSpec, load_experiment
from evalflows.stats.agreement import agreement
from evalflows.store import connect

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PUBLISHED = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", ROOT.parent / "shared" / "data"))
VICUNA, PANDALM = PUBLISHED / "vicuna80", PUBLISHED / "pandalm"
REVIEWS_SCRIPT = ROOT / "examples" / "vicuna80_reviews.py"

with_vicuna = pytest.mark.skipif(not VICUNA.is_dir(), reason="vicuna80 is not there (EVALFLOWS_PUBLISHED_DATA)")
with_pandalm = pytest.mark.skipif(not PANDALM.is_dir(), reason="pandalm is not there (EVALFLOWS_PUBLISHED_DATA)")

ONE_ORDER = "one experiment's answers were always shown first: position bias cannot be told apart from better answers"

Rows = Callable[..., list[tuple[Any, ...]]]


def lines(path: Path) -> list[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def in_prefect(prefect_environment: dict[str, str]) -> Iterator[None]:
    url = prefect_environment["PREFECT_API_URL"]
    with temporary_settings({PREFECT_API_URL: url, PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield


@contextmanager
def a_store_in(folder: Path) -> Iterator[Rows]:
    """A store that several tests read; what is given asks it. Paths are meanwhile those of the folder."""
    root = folder / "store"

    def rows(query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with connect(root) as catalog:
            return catalog.execute(query, list(parameters)).fetchall()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALFLOWS_STORE", str(root))
        patch.setenv("EVALFLOWS_SPOOL", str(folder / "spool"))
        patch.setenv("EVALFLOWS_PUBLISHED_DATA", str(PUBLISHED))
        patch.chdir(folder)
        yield rows


# Vicuna: 80 questions, answered by five models, of which each was compared with vicuna-13b by GPT-4

ANNOUNCED = {
    "llama-13b": (513.0, 694.0),
    "alpaca-13b": (583.0, 704.0),
    "bard": (664.0, 655.5),
    "gpt-3.5": (693.0, 638.0),
}
"""The total scores in the announcement: each model's beside vicuna-13b, and vicuna-13b's beside it."""


@pytest.fixture(scope="module")
def vicuna(in_prefect: None, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The store after the example has been run as its first lines say."""
    with a_store_in(tmp_path_factory.mktemp("vicuna80")) as rows:
        with Path("vicuna80_reviews.jsonl").open("w", encoding="utf-8") as recording:
            subprocess.run([sys.executable, str(REVIEWS_SCRIPT)], stdout=recording, check=True)
        run(load_experiment(ROOT / "examples" / "vicuna80_comparison.yaml"))
        return rows


def scores_of_files() -> dict[str, list[tuple[float, float]]]:
    """By the name of the other model, its score and vicuna-13b's of each question, from the files as they are."""
    folder = VICUNA / "review" / "vicuna-13b-20230322-clean-lang"
    files = {name: "gpt35" if name == "gpt-3.5" else name for name in ANNOUNCED}
    paths = {name: folder / f"review_{file}_{folder.name}.jsonl.gz" for name, file in files.items()}
    return {name: [tuple(review["score"]) for review in lines(path)] for name, path in paths.items()}


@with_vicuna
def test_the_totals_that_were_announced_are_sums_of_the_scores_kept(vicuna: Rows) -> None:
    totals = vicuna("""
        with sides as (
            select left_experiment_id as own, right_experiment_id as other, left_score as score from pair_outcomes
            union all
            select right_experiment_id, left_experiment_id, right_score from pair_outcomes
        )
        select own.target, other.target, sum(score), count(score)
        from sides
        join experiments own on own.experiment_id = sides.own
        join experiments other on other.experiment_id = sides.other
        group by all
    """)
    assert {(own, other): total for own, other, total, _ in totals} == {
        **{(name, "vicuna-13b"): total for name, (total, _) in ANNOUNCED.items()},
        **{("vicuna-13b", name): total for name, (_, total) in ANNOUNCED.items()},
    }
    assert {count for *_, count in totals} == {80}


@with_vicuna
def test_wins_ties_and_losses_are_those_of_the_reviews(vicuna: Rows) -> None:
    found = vicuna("""
        select e.target, b.target, w.wins, w.ties, w.losses, w.missing
        from win_rates w
        join experiments e on e.experiment_id = w.candidate_experiment_id
        join experiments b on b.experiment_id = w.baseline_experiment_id
        where slice = 'all' and not length_controlled
    """)
    counted = {name: Counter((a > b) - (a < b) for a, b in scores) for name, scores in scores_of_files().items()}
    assert {*found} == {(name, "vicuna-13b", of[1], of[0], of[-1], 0) for name, of in counted.items()}


@with_vicuna
def test_the_ratings_are_the_odds_against_vicuna(vicuna: Rows) -> None:
    """In closed form: none of the four met another than vicuna-13b."""
    board = vicuna("select target, rating, ci_low, ci_high, rank from leaderboard where slice = 'all' order by rank")
    assert [target for target, *_ in board] == ["gpt-3.5", "vicuna-13b", "bard", "alpaca-13b", "llama-13b"]
    assert [rank for *_, rank in board] == [1, 2, 3, 4, 5]
    assert all(math.isfinite(low) and low < rating < high < math.inf for _, rating, low, high, _ in board)
    ratings = {target: rating for target, rating, *_ in board}
    assert sum(ratings.values()) == pytest.approx(5 * 1000)
    for name, scores in scores_of_files().items():
        won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in scores)
        odds = won / (80 - won)
        assert ratings[name] - ratings["vicuna-13b"] == pytest.approx(400 * math.log10(odds), abs=1e-3)


# PandaLM: 999 pairs of answers, labelled by three people and by two judges

PEOPLE = ("person_1", "person_2", "person_3")
GARBAGE = 25  # what gpt-3.5-turbo said of so many pairs was no verdict, and was counted as a tie

PANDALM_PAIRS = {
    ("llama-7b", "bloom-7b"): ((72, 28, 11), (69, 32, 10), (57, 37, 17)),
    ("llama-7b", "cerebras-gpt-6.7B"): ((80, 24, 6), (80, 24, 6), (75, 26, 9)),
    ("llama-7b", "opt-7b"): ((71, 24, 11), (70, 29, 7), (60, 33, 13)),
    ("llama-7b", "pythia-6.9b"): ((58, 27, 9), (60, 28, 6), (46, 41, 7)),
    ("bloom-7b", "cerebras-gpt-6.7B"): ((59, 30, 11), (67, 29, 4), (57, 31, 12)),
    ("bloom-7b", "opt-7b"): ((43, 35, 11), (46, 38, 5), (46, 36, 7)),
    ("bloom-7b", "pythia-6.9b"): ((49, 47, 11), (52, 48, 7), (51, 41, 15)),
    ("cerebras-gpt-6.7B", "opt-7b"): ((33, 49, 9), (38, 45, 8), (37, 45, 9)),
    ("cerebras-gpt-6.7B", "pythia-6.9b"): ((27, 53, 11), (28, 57, 6), (33, 52, 6)),
    ("opt-7b", "pythia-6.9b"): ((32, 53, 15), (43, 53, 4), (40, 48, 12)),
}
"""As PandaLM's first README has it: wins, losses and ties of the model named first, by the people's majority, by
gpt-3.5-turbo and by PandaLM-7B."""

MAJORITY = """
with votes as (
    select example_id, winner, count(*) as people from pair_outcomes where metric like 'person_%' group by all
), majority as (
    select example_id, winner from votes where people >= 2
)
"""


def labels() -> dict[str, list[int | None]]:
    """Each rater's labels: 1 or 2 for the response that is better, 0 for a tie, None for garbage."""
    pairs = lines(PANDALM / "testset-v1.jsonl.gz")
    said = {"Tie": 0, "0": 0, "1": 1, "2": 2, "garbage": None}
    judged = {
        "gpt_3_5": [row["gpt_result"] for row in lines(PANDALM / "gpt-3.5-turbo-testset-v1.jsonl.gz")],
        "pandalm_7b": [row["pandalm_result"] for row in lines(PANDALM / "pandalm-7b-testset-v1.jsonl.gz")],
    }
    people = {person: [row[f"annotator{person[-1]}"] for row in pairs] for person in PEOPLE}
    return {rater: [said[str(label)] for label in given] for rater, given in (people | judged).items()}


def record(rater: str, given: Sequence[int | None]) -> dict[str, Any]:
    """An evaluator that says again what a rater said. Garbage is no verdict."""
    rows = [
        {"example_id": str(place), "first": "response1", "second": "response2", "winner": label}
        for place, label in enumerate(given)
        if label is not None
    ]
    path = Path(f"{rater}.jsonl")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {"use": "recorded_preference", "name": rater, "args": {"path": str(path), "order": "known"}}


@pytest.fixture(scope="module")
def pandalm(in_prefect: None, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The store after the two responses have been compared by all five."""
    path = str(PANDALM / "testset-v1.jsonl.gz")
    columns = {"inputs": ["instruction", "input"], "metadata": ["cmp_key"], "id": "idx"}
    data = DatasetSpec.model_validate({"path": path, "name": "pandalm", "columns": columns})
    with a_store_in(tmp_path_factory.mktemp("pandalm")) as rows:
        answered = [
            evaluate(
                {"kind": "recorded", "name": name, "path": path, "columns": {"id": "idx", "outputs": {"output": name}}},
                data,
                experiment_prefix=name,
            )
            for name in ("response1", "response2")
        ]
        raters = [record(rater, given) for rater, given in labels().items()]
        compared = evaluate(tuple(answered), evaluators=raters, slice_by=["metadata.cmp_key"])
        assert len(compared) == 5 * 999
        return rows


def counted_kappa(ours: Sequence[int | None], theirs: Sequence[int | None]) -> float:
    """Cohen's kappa of the pairs that both have labelled, by counting."""
    both = [(one, other) for one, other in zip(ours, theirs, strict=True) if one is not None and other is not None]
    sides = [Counter(side) for side in zip(*both, strict=True)]
    chance = sum(sides[0][label] * sides[1][label] for label in (0, 1, 2)) / len(both) ** 2
    return (sum(one == other for one, other in both) / len(both) - chance) / (1 - chance)


@pytest.mark.soak
@with_pandalm
def test_every_label_is_kept_as_it_was_given(pandalm: Rows) -> None:
    kept = pandalm("select metric, example_id, winner, status from pair_outcomes")
    sides = ("tie", "response1", "response2")
    assert {*kept} == {
        (rater, str(place), None if label is None else sides[label], "missing" if label is None else "scored")
        for rater, given in labels().items()
        for place, label in enumerate(given)
    }
    failed = pandalm("select evaluator, count(*) from comparisons where status <> 'scored' group by all")
    assert failed == [("gpt_3_5", GARBAGE)]


@pytest.mark.soak
@with_pandalm
def test_people_agree_as_much_as_was_published(pandalm: Rows) -> None:
    query = "select metric, bias, kappa, n from judge_biases where bias like 'agreement with %'"
    found = {
        frozenset((one, bias.removeprefix("agreement with "))): (kappa, n) for one, bias, kappa, n in pandalm(query)
    }
    given = labels()
    assert len(found) == 10
    for one, other in combinations(given, 2):
        kappa, n = found[frozenset((one, other))]
        assert kappa == pytest.approx(counted_kappa(given[one], given[other]))
        assert n == (999 - GARBAGE if "gpt_3_5" in (one, other) else 999)
    published = {("person_1", "person_2"): 0.85, ("person_1", "person_3"): 0.88, ("person_2", "person_3"): 0.86}
    assert {pair: round(found[frozenset(pair)][0], 2) for pair in published} == published


@pytest.mark.soak
@with_pandalm
def test_judges_agree_with_the_peoples_majority_as_often_as_was_published(pandalm: Rows) -> None:
    """The published shares count garbage as a tie. Here it is missing, so that gpt-3.5-turbo does a little better."""
    query = f"""{MAJORITY} select majority.winner, judge.winner
                from majority join pair_outcomes judge using (example_id) where judge.metric = ?"""
    for judge, published, share, kappa, n in (
        ("gpt_3_5", 0.7107, 697 / 974, 0.4929, 974),
        ("pandalm_7b", 0.6677, 667 / 999, 0.4354, 999),
    ):
        said = pandalm(query, judge)
        assert round(sum((theirs or "tie") == people for people, theirs in said) / 999, 4) == published
        found = agreement(*zip(*[(people, theirs) for people, theirs in said if theirs is not None], strict=True))
        assert (found.n, found.share) == (n, pytest.approx(share))
        assert found.kappa == pytest.approx(kappa, abs=5e-5)


def as_published(models: str, wins: int, losses: int, ties: int) -> tuple[tuple[str, str], tuple[int, int, int]]:
    """The second response's wins, losses and ties as those of the model that the published table names first."""
    one, other = models.removeprefix("metadata.cmp_key=").split("_")
    if (one, other) in PANDALM_PAIRS:
        return (one, other), (losses, wins, ties)
    return (other, one), (wins, losses, ties)


@pytest.mark.soak
@with_pandalm
def test_a_judges_wins_for_each_two_models_are_the_published_ones(pandalm: Rows) -> None:
    query = """select slice, wins, losses, ties + missing from win_rates
               where metric = ? and slice <> 'all' and candidate = 'response2' and baseline = 'response1'"""
    for column, judge in ((1, "gpt_3_5"), (2, "pandalm_7b")):
        found = dict(as_published(*row) for row in pandalm(query, judge))
        assert found == {pair: of[column] for pair, of in PANDALM_PAIRS.items()}


@pytest.mark.soak
@with_pandalm
def test_nothing_is_concluded_from_labels_in_one_order_however_clear_they_are(pandalm: Rows) -> None:
    counts = pandalm(f"{MAJORITY} select winner, count(*) from majority group by all")
    assert dict(counts) == {"tie": 105, "response1": 422, "response2": 472}, "never do all three differ"
    positions = pandalm("select metric, message from judge_biases where bias = 'position_preference'")
    assert dict(positions) == dict.fromkeys(labels(), "not identifiable: one order only")
    assert pandalm("select distinct conclusion, reason from win_rates") == [("not_enough_evidence", ONE_ORDER)]
    ((least,),) = pandalm("select min(p_value) from win_rates where slice <> 'all'")
    assert least < 1e-5
