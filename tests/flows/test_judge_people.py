"""A judge against people: through the flow, and on labels that others published."""

import gzip
import json
import os
from dataclasses import replace
from datetime import date, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared import Compared, run_id
from labelled import judged, run_of, score, write_csv
from matched import asked
from production import BEGAN, produce, trace, trace_id
from production import score as score_of_trace
from store_rows import make_row

from evalflows.analysis.judge_exclusions import by_people
from evalflows.analysis.label_sampling import next_to_label
from evalflows.analysis.labels import judge_standings
from evalflows.flows.validate_judge import compare_with_people
from evalflows.reports.judges import JudgeReport, judge_reports
from evalflows.specs.errors import InputError
from evalflows.stats.agreement import agreement, krippendorff_alpha
from evalflows.stats.judge_error import prediction_powered_mean
from evalflows.store.labels import import_labels
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id
from evalflows.tasks.score import validate_judge

N = 400
PUBLISHED = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
PANDALM = PUBLISHED / "pandalm"
with_pandalm = pytest.mark.skipif(not PANDALM.is_dir(), reason="pandalm is not there (EVALFLOWS_PUBLISHED_DATA)")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def answers(
    n: int = N, right: float = 0.7, slip: float = 0.2, seed: int = 0
) -> tuple[dict[str, float], dict[str, float]]:
    """Which answers are right, and what a judge says that says yes to all of them and to a fifth of the wrong ones."""
    rng = np.random.default_rng(seed)
    truth = {f"q{i:04}": float(rng.random() < 0.7) for i in range(n)}
    return truth, {name: value or float(rng.random() < 0.2) for name, value in truth.items()}


def people_say(owner: str, said: Any, metric: str = "correct", **fields: Any) -> None:
    rows = [{"run_id": run_of(owner, name), "value": value, **fields} for name, value in said.items()]
    import_labels(Store(), write_csv("labels.csv", rows), metric=metric)


def weighed(owner: str, metric: str = "correct", people: str | None = None) -> JudgeReport:
    (report,) = judge_reports(Store(), validate_judge.fn(owner, metric, people or metric, 0.95))
    return report


def first(said: dict[str, float], n: int) -> dict[str, float]:
    return dict(list(said.items())[:n])


def test_too_few_labels_of_a_kind_are_said_with_the_command_that_brings_them() -> None:
    """Even where judge and people agree on all 60: what of three no is no proof."""
    said = {f"q{n:03}": float(n >= 3) for n in range(400)}
    owner = judged("rare", said)
    people_say(owner, first(said, 60))
    report = weighed(owner)
    assert report.passed is None
    assert (
        "people labelled 3 of 60 no, too few to tell: wanted 7 more no, about as many as in 109 at random: "
        f"`evalflows labels next {owner} correct --order random --n 109 --out to_label.csv`"
    ) in report.sentences
    people_say(owner, first(said, 300))
    assert "wanted 7 more no; the 100 answers without a label are too few for it" in "\n".join(weighed(owner).sentences)
    people_say(owner, {name: float(n >= 10) for n, name in enumerate(first(said, 60))})
    assert "too few to tell" not in "\n".join(weighed(owner).sentences)


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_the_flow_keeps_a_check_with_all_figures_and_again_the_same() -> None:
    truth, said = answers()
    owner = judged("small", said)
    people_say(owner, first(truth, 100))
    batch = compare_with_people("small", "correct")
    assert compare_with_people("small", "correct") == batch
    ((kind, subject, name, passed, n, told),) = asked(
        "select subject_kind, subject_id, name, passed, n_checked, observed::varchar from checks where batch_id = ?",
        batch,
    )
    assert (kind, subject, name, passed, n) == ("judge", "correct", "people", True, 100)
    found, ours, theirs = json.loads(told), [*first(said, 100).values()], [*first(truth, 100).values()]
    known, alpha = agreement(ours, theirs), krippendorff_alpha(list(zip(ours, theirs, strict=True)))
    assert (found["agreement"]["share"], found["agreement"]["kappa"]) == pytest.approx((known.share, known.kappa))
    assert (found["alpha"]["alpha"], found["alpha"]["low"]) == pytest.approx((alpha.alpha, alpha.low), abs=0.02)
    powered = prediction_powered_mean(theirs, ours, [*said.values()][100:], bounds=(0, 1))
    assert [found["powered_mean"][end] for end in ("mean", "low", "high")] == pytest.approx(
        [powered.mean, powered.low, powered.high]
    )
    assert found["confusion"]["labels"] == [1.0, 0.0]


def test_a_generous_judge_is_put_right_and_one_that_people_agree_with_is_not_accused() -> None:
    truth, said = answers(2000)
    owner = judged("small", said)
    people_say(owner, first(truth, 200))
    report = weighed(owner)
    judge, powered = report.observed["judge_mean"], report.observed["powered_mean"]
    everyone = sum(truth.values()) / 2000
    assert powered["low"] < everyone < powered["high"]
    assert judge["low"] > everyone
    assert powered["gain"] > 1.5
    told = "\n".join(report.sentences)
    assert "better than chance" in told and "it is too generous" in told and "do not report the judge's" in told
    rng = np.random.default_rng(1)
    score(owner, {q: 1 - value if rng.random() < 0.05 else value for q, value in truth.items()}, metric="agreed")
    people_say(owner, first(truth, 100), metric="agreed")
    told = "\n".join(weighed(owner, "agreed").sentences)
    assert "no significant bias" in told and "the judge's mean is within the interval" in told


def test_a_judge_that_guesses_or_says_one_thing_only_does_not_pass_and_feedback_is_no_fair_sample() -> None:
    truth, _ = answers(200)
    rng = np.random.default_rng(2)
    owner = judged("small", {name: float(rng.random() < 0.7) for name in truth})
    people_say(owner, first(truth, 100))
    report = weighed(owner)
    assert report.passed is False
    assert "not significantly better than chance" in report.sentences[0]
    for metric in ("constant", "thumbs"):
        score(owner, dict.fromkeys(truth, 1.0), metric=metric)
    people_say(owner, dict.fromkeys(first(truth, 10), 1), metric="constant")
    report = weighed(owner, "constant")
    assert report.passed is None
    assert "is unknown: all 20 ratings are the same" in report.sentences[0]
    assert "no prediction-powered interval: 10 labels: an interval needs at least 20" in report.sentences
    rows = [{"run_id": run_of(owner, q), "feedback": "up" if v else "down"} for q, v in first(truth, 60).items()]
    import_labels(Store(), write_csv("thumbs.csv", rows), metric="thumbs")
    report = weighed(owner, "thumbs")
    assert report.observed["agreement"]["share"] is not None
    assert report.means[-1][1] == "-"
    assert "no prediction-powered interval: the labels are not a random sample" in "\n".join(report.sentences)


def test_people_may_call_it_otherwise_and_then_the_leaderboard_knows_it() -> None:
    truth, said = answers(100)
    owner = judged("small", said)
    people_say(owner, first(truth, 50), metric="right", labeller="ann")
    assert asked("select count(*) from judge_quality") == [(0,)]
    assert weighed(owner, people="right").observed["people_metric"] == "right"
    assert asked("select metric, people_metric, n_labels from judge_quality") == [("correct", "right", 50)]
    people_say(owner, {"q0003": 1 - truth["q0003"]}, metric="right", labeller="ben")
    observed = weighed(owner, people="right").observed
    assert (observed["n_split"], observed["agreement"]["n"]) == (1, 49), "two people who differ say nothing there"


def test_several_people_are_a_majority_and_their_own_agreement_is_told() -> None:
    truth, said = answers(60)
    owner = judged("small", said)
    flips = {"ann": 0, "ben": 7, "cem": 11}
    for who, every in flips.items():
        other = {q: 1 - v if every and i % every == 0 else v for i, (q, v) in enumerate(truth.items())}
        people_say(owner, other, labeller=who)
    told = weighed(owner).observed
    ratings = [
        [1 - v if every and i % every == 0 else v for every in flips.values()] for i, v in enumerate(truth.values())
    ]
    assert told["people_alpha"]["alpha"] == pytest.approx(krippendorff_alpha(ratings).alpha)
    most = [float(sum(row) > 1.5) for row in ratings]
    assert told["agreement"]["kappa"] == pytest.approx(agreement([*said.values()], most).kappa)
    assert (told["n_labellers"], told["n_labels"], told["n_labelled"], told["n_split"]) == (3, 180, 60, 0)
    assert told["labels_mean"]["mean"] == pytest.approx(np.mean(most))
    people_say(owner, {q: 1 - most[i] for i, q in enumerate(truth) if i < 4}, labeller="dan")
    told, error = weighed(owner).observed, np.array([*said.values()]) - most
    counted = np.array([i >= 4 or len({*row}) == 1 for i, row in enumerate(ratings)])  # else two people against two
    assert (told["n_split"], told["agreement"]["n"], told["labels_mean"]["n"]) == (
        60 - counted.sum(),
        *2 * [counted.sum()],
    )
    assert told["error"]["bias"] == pytest.approx(error[counted].mean()), "one population for all figures"
    figures = (told["agreement"]["share"], told["agreement"]["kappa"], told["error"]["bias"], told["n_labels"])
    ((n, *found),) = asked("select n_judgements, agreement, kappa, bias, n_labels from judge_quality")
    assert n == counted.sum() and found == pytest.approx(figures), "judge_quality says the same"


def test_repetitions_of_an_example_are_one_draw() -> None:
    truth, said = answers(60)
    owner = judged("small", {q: [v, v, v] for q, v in said.items()})
    rows = [{"run_id": run_of(owner, q, r), "value": v} for q, v in truth.items() for r in range(3)]
    import_labels(Store(), write_csv("labels.csv", rows), metric="correct")
    told = weighed(owner).observed
    for one in ("agreement", "alpha", "error", "powered_mean", "judge_mean"):
        assert told[one]["n_clusters"] == 60, one


def test_scores_are_numbers_and_labels_are_labels() -> None:
    rng = np.random.default_rng(3)
    people = {f"q{i:03}": float(rng.integers(1, 6)) for i in range(120)}
    owner = judged("small", {q: min(v + float(rng.integers(0, 2)), 5.0) for q, v in people.items()}, metric="depth")
    people_say(owner, first(people, 60), metric="depth")
    report = weighed(owner, "depth")
    assert report.observed["kind"] == "numbers" and "agreement" not in report.observed
    assert report.observed["alpha"]["metric"] == "interval"
    assert report.observed["error"]["low"] > 0 and report.observed["error"]["correlation"] > 0.8
    tones = {q: ["kind", "plain", "rude"][int(v) % 3] for q, v in people.items()}
    score(owner, {q: "plain" if q < "q010" else v for q, v in tones.items()}, metric="tone")
    rows = [{"run_id": run_of(owner, q), "label": v} for q, v in tones.items()]
    import_labels(Store(), write_csv("tones.csv", rows), metric="tone")
    tone = weighed(owner, "tone")
    assert tone.observed["kind"] == "labels" and tone.means == []
    assert {*tone.observed["confusion"]["labels"]} == {"kind", "plain", "rude"}
    with pytest.raises(InputError, match="the judge gave labels, people numbers"):
        validate_judge.fn(owner, "tone", "depth", 0.95)


def test_known_chances_weigh_the_labels() -> None:
    truth, said = answers(1500, seed=4)
    owner = judged("small", said)
    rng = np.random.default_rng(5)
    chance = {q: 0.1 if v else 0.4 for q, v in said.items()}
    rows = [
        {"run_id": run_of(owner, q), "value": v, "chance": chance[q]}
        for q, v in truth.items()
        if rng.random() < chance[q]
    ]
    import_labels(Store(), write_csv("labels.csv", rows), metric="correct")
    told = weighed(owner).observed
    labels, powered = told["labels_mean"], told["powered_mean"]
    assert labels["high"] < 0.65  # wrong answers were drawn more often
    assert powered["low"] < sum(truth.values()) / 1500 < powered["high"]


def test_preferences_of_people_are_held_against_a_comparison() -> None:
    rng = np.random.default_rng(6)
    names = [f"q{i:03}" for i in range(90)]
    compared = Compared(Store(), examples=names, both_orders=False)
    truth = {name: str(rng.choice(["left", "right"], p=[0.4, 0.6])) for name in names}
    for name, winner in truth.items():
        compared.judge(name, "right" if rng.random() < 0.15 else winner)
    compared.write()
    calls = {"left": "old", "right": "new"}
    rows = [{"run_id": run_id(1, name), "other_experiment": "old", "winner": calls[truth[name]]} for name in names[:50]]
    import_labels(Store(), write_csv("pairs.csv", rows), metric="preference")
    report = weighed("cmp-1", "preference")
    assert report.observed["kind"] == "pairs" and report.observed["candidate"] == "new"
    assert report.confusion is not None and report.confusion[0][1:4] == ["judge: old", "judge: tie", "judge: new"]
    with pytest.raises(InputError, match="pairs are labelled on the page Review"):
        next_to_label("cmp-1", "preference", "preference", 10)
    assert report.observed["agreement"]["n"] == 50 and report.passed is True
    wins = sum(winner == "right" for winner in truth.values()) / 90
    assert report.observed["powered_mean"]["low"] < wins < report.observed["powered_mean"]["high"]
    assert asked("select kind, n_labels from judge_quality") == [("pair", 50)]


def test_over_rounds_of_the_form_only_the_fair_part_counts() -> None:
    truth, said = answers(300)
    owner = judged("small", said)
    run = {run_of(owner, q): q for q in truth}
    for _ in range(2):
        form = next_to_label("small", "correct", "correct", 40)
        assert not {"value_judge", "score", "judge"} & {*form.rows[0]}  # whoever reads the verdict goes by it
        for row in form.rows:
            row["value"] = truth[run[row["run_id"]]]
        import_labels(Store(), write_csv("form.csv", form.rows))
    told = weighed(owner).observed
    ((fair,),) = asked("select count(*) from current_labels where is_fair")
    assert (told["n_labelled"], told["n_left_out"]) == (fair, 80 - fair)
    assert 40 <= fair < 80
    form = next_to_label("small", "correct", "correct", 10, "informative")
    assert (form.n_fair, form.n_fair_before) == (0, fair) and "needed" not in form.text
    assert {row["drawn"] for row in next_to_label("small", "correct", "correct", 10, "random").rows} == {"fair"}
    none = next_to_label("small", "correct", "other", 10)
    assert none.text.endswith(
        "5 labels drawn at random will count for agreement, 15 more are needed for the corrected mean (--order random)"
    )


DAYS = [BEGAN + timedelta(days=day) for day in range(3)]
OF_DAY = 20


def watched(truth: dict[str, float], said: dict[str, float]) -> None:
    """Traces of three days, two of each session, which the evaluation `watch` has judged."""
    began = {name: DAYS[i // OF_DAY] + timedelta(minutes=i) for i, name in enumerate(truth)}
    traces = [
        trace(name, f"asked {name}", f"answer {name}", began=began[name], session=f"s{i // 2}")
        for i, name in enumerate(truth)
    ]
    scores = [
        score_of_trace(name, "helpful", value, began=began[name], judge_model="judge-1") for name, value in said.items()
    ]
    before = score_of_trace("q0000", "helpful", 1 - said["q0000"], mapper_version="before", judge_model="judge-1")
    produce(Store(), *traces, scores=[replace(before, judgement_id="before")])
    produce(Store(), scores=scores)
    watch = evaluation_id("watch")
    spec = json.dumps({"composites": [{"name": "quality", "panel": ["helpful", "other"]}]})
    row = make_row("watermarks", batch_id="b", evaluation_id=watch, name="watch", spec=spec, scope="traces")
    Store().publish("watermarks", watch, [row])


def test_labels_of_traces_validate_the_judge_of_production() -> None:
    truth, said = answers(3 * OF_DAY)
    watched(truth, said)
    owner = evaluation_id("watch")
    first_days = first(truth, 2 * OF_DAY)
    rows = [{"trace_id": trace_id(name), "value": value, "labeller": "ann"} for name, value in first_days.items()]
    import_labels(Store(), write_csv("old.csv", [{**rows[0], "value": 1 - truth["q0000"]}]), metric="helpful")
    import_labels(Store(), write_csv("labels.csv", rows), metric="helpful")

    columns = "kind, experiment_id, evaluation_id, run_id, value"
    beside = asked(f"select {columns} from judge_labels where subject_id = ?", trace_id("q0000"))
    assert beside == [("trace", f"{owner}-2026-11-01", owner, None, said["q0000"])], "the newest mapper, the last label"
    report = weighed("watch", "helpful")
    observed, known = report.observed, agreement([*first(said, 40).values()], [*first_days.values()])
    assert observed["name"] == "watch from 2026-11-01 to 2026-11-02", "labels say nothing of the third day"
    assert [observed[n] for n in ("n_labelled", "n_judged", "n_labels", "n_split")] == [40, 40, 40, 0]
    assert observed["judge_mean"]["n_clusters"] == observed["agreement"]["n_clusters"] == 20, (
        "sessions are the clusters"
    )
    assert (report.passed, observed["agreement"]["kappa"]) == (True, pytest.approx(known.kappa))
    assert weighed(owner, "helpful").observed == observed, "by its id"
    assert asked("select kind, n_judgements, kappa from judge_quality") == [("trace", 40, pytest.approx(known.kappa))]
    (standing,) = judge_standings(Store())
    assert (standing.n_items, standing.kappa) == (40, pytest.approx(known.kappa))

    form = next_to_label("watch", "helpful", "helpful", 8, since=DAYS[2].date())
    third = {trace_id(name): name for name in [*truth][2 * OF_DAY :]}
    assert {row["trace_id"] for row in form.rows} <= third.keys() and len(form.rows) == 8
    assert {row["drawn_from"] for row in form.rows} == {"watch on 2026-11-03"}
    assert form.rows[0]["outputs"] == f"answer {third[form.rows[0]['trace_id']]}"
    filled = [{**row, "value": 1 - said[third[row["trace_id"]]]} for row in form.rows]
    import_labels(Store(), write_csv("form.csv", filled))
    fair = dict(asked("select metadata ->> 'drawn', bool_and(is_fair) from current_labels group by all"))
    assert fair == {None: True, "fair": True, "uncertain": False}
    assert weighed("watch", "helpful").observed["n_judged"] == 60

    run = judged("small", said, metric="helpful")
    people_say(run, first(truth, 10), metric="helpful")
    assert asked("select kind, n_labels from judge_quality") == [("run, trace", 54)]
    assert {one.n_labels for one in judge_standings(Store())} == {54}
    wrong = [{"trace_id": trace_id(name), "value": i % 2, "labeller": "ann"} for i, name in enumerate(said)]
    import_labels(Store(), write_csv("wrong.csv", wrong), metric="helpful")
    assert weighed("watch", "helpful").passed is False
    assert by_people(Store()).keys() == {("v1", "helpful")}, "it decides nothing, in gates of experiments too"
    with pytest.raises(InputError, match="metric 'tone': not in watch, wanted one of: helpful"):
        weighed("watch", "tone")
    with pytest.raises(InputError, match="'tone': got no labels for watch, wanted one of: helpful"):
        weighed("watch", "helpful", "tone")
    with pytest.raises(InputError, match="since: got 2026-11-03 for an experiment"):
        next_to_label("small", "helpful", "helpful", 8, since=DAYS[2].date())
    with pytest.raises(InputError, match="not in traces since 2026-11-09 of watch"):
        next_to_label("watch", "helpful", "helpful", 8, since=date(2026, 11, 9))


# PandaLM: 999 pairs of answers, each labelled by three people, and by gpt-3.5-turbo


def published() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Three people's labels of each pair, and the judge's, nan for garbage: 1 or 2 for who is better, 0 for a tie."""

    def read(name: str) -> list[Any]:
        with gzip.open(PANDALM / name, "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    people = [[row[f"annotator{k}"] for k in (1, 2, 3)] for row in read("testset-v1.jsonl.gz")]
    said = {"Tie": 0.0, "0": 0.0, "1": 1.0, "2": 2.0}
    judge = [said.get(str(row["gpt_result"]), np.nan) for row in read("gpt-3.5-turbo-testset-v1.jsonl.gz")]
    return np.array(people, dtype=float), np.array(judge)


@with_pandalm
def test_people_who_agree_two_by_two_agree_as_three() -> None:
    """PandaLM gives kappas of 0.85, 0.86 and 0.88 for its people, two by two."""
    people, judge = published()
    found = krippendorff_alpha(people.tolist())
    kappas = [agreement(people[:, i].tolist(), people[:, j].tolist()).kappa or 0 for i, j in combinations(range(3), 2)]
    assert sorted(round(kappa, 2) for kappa in kappas) == [0.85, 0.86, 0.88]
    assert found.alpha == pytest.approx(np.mean(kappas), abs=2e-3)
    with_judge = krippendorff_alpha(np.column_stack([people, judge]).tolist())
    assert with_judge.high is not None and found.low is not None and with_judge.high < found.low


@with_pandalm
def test_a_hundred_peoples_labels_tell_the_win_rate_of_all_999() -> None:
    people, judge = published()
    points = {0.0: 0.5, 1.0: 0.0, 2.0: 1.0}
    known = ~np.isnan(judge)
    theirs = np.array([points[one] for one in people[known, 0]])
    ours = np.array([points[one] for one in judge[known]])
    rng, covered, narrower = np.random.default_rng(7), 0, []
    for _ in range(200):
        order = rng.permutation(known.sum())
        one, rest = order[:100], order[100:]
        found = prediction_powered_mean(theirs[one], ours[one], ours[rest], bounds=(0, 1))
        assert found.low is not None and found.high is not None and found.gain is not None
        covered += found.low <= theirs.mean() <= found.high
        narrower.append(found.gain)
    assert covered / 200 >= 0.94
    assert 1.2 < np.mean(narrower) < 1.8
