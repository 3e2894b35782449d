"""`evalflows decide` and `evalflows.decide`: results that others made are decided on as runs of ours."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from gated import drawn, fallen

from evalflows import decide
from evalflows.cli.main import cli
from evalflows.specs.errors import InputError
from evalflows.store.sql import ask
from evalflows.store.store import Store

N = 200
OLD = {f"q{number}": float(right) for number, right in enumerate(drawn(N, 0.8))}
NEW = {f"q{number}": float(right) for number, right in enumerate(fallen(drawn(N, 0.8), 0.2))}


def write(path: Path, scores: Mapping[str, Any], **fields: Any) -> str:
    """A file of rows, with fields that are the same in all or given by a function of the number."""
    rows = [
        {
            "id": one,
            "correct": value,
            **{name: field(n) if callable(field) else field for name, field in fields.items()},
        }
        for n, (one, value) in enumerate(scores.items())
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["decide", *arguments], env={"COLUMNS": "300"})


def test_a_command_decides_on_two_files(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", OLD, topic=lambda n: "ab"[n % 2])
    new = write(tmp_path / "new.jsonl", NEW, topic=lambda n: "ab"[n % 2])
    missing = write(tmp_path / "missing.jsonl", OLD | {"q3": None, "q5": None}, topic="a")
    nothing = asked(old, missing)
    assert nothing.exit_code == 0, nothing.output
    assert "read: table: 400 results of 2 systems" in nothing.stdout
    assert "2 of 200 values of correct are missing in missing" in nothing.stdout
    assert "correct: 198 pairs detect a difference of" in nothing.stdout
    passed = asked(old, missing, "--metric", "correct=.1")
    assert (passed.exit_code, passed.stdout.splitlines()[2]) == (0, "PASS  gate decide: missing against old")
    failed = asked(old, new, "--metric", "correct=.05", "--all")
    assert "not shown" not in failed.stdout
    assert failed.stdout.count("  1 → 0") == sum(OLD[one] > NEW[one] for one in OLD) > 3
    assert re.search(r"not shown: \d+ examples: --all", asked(old, new, "--metric", "correct=.05").stdout)
    assert failed.exit_code == 1 and "FAIL  gate decide: new against old" in failed.stdout
    assert "broken correct is worse by more than 0.05: -0.200 " in failed.stdout
    assert asked(old, old, "--superiority", "correct").exit_code == 3
    assert "was given twice: a system is compared with itself" in asked(old, old).stdout
    files = {name: str(tmp_path / name) for name in ("junit", "json", "summary")}
    several = asked(old, new, missing, "--metric", "correct=.1", *(f"--{name}={path}" for name, path in files.items()))
    assert several.exit_code == 1 and "new" in several.stdout and "missing" in several.stdout
    assert "dec-" not in several.stdout, "nothing explains what is not kept"
    for path in files.values():
        assert "evalflows explain" not in Path(path).read_text(), path
    assert json.loads(Path(files["json"]).read_text())["next"] is None
    sliced = asked(old, new, "--metric", "correct=.1", "--slice", "topic")
    assert "correct@metadata.topic=a is worse" in sliced.stdout
    lines = [json.dumps({"id": n, "topic": "ab"[n % 2], "recall@5": n % 3 / 2}) for n in range(60)]
    both = [str(tmp_path / f"{name}-found.jsonl") for name in ("old", "new")]
    for path in both:
        Path(path).write_text("\n".join(lines))
    found = asked(*both, "--metric", "recall@5=.1", "--slice", "topic").stdout
    assert "recall@5@metadata.topic=a may be worse" in found, "a name with @ is no slice"
    lower = asked(old, new, "--metric", "correct=.1", "--lower-is-better", "correct")
    assert (lower.exit_code, "PASS" in lower.stdout) == (0, True), "it fell, which is better"
    clustered = json.loads(asked(old, new, "--cluster", "topic", "--json", "-").stdout)
    assert "cluster" in json.dumps(clustered["remarks"]), "two clusters are too few"
    assert clustered["next"] is None, "no command without placeholders"

    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"gates": [{"name": "floor", "thresholds": {"correct": 0.5}}], "targets": "not read"}))
    summary = tmp_path / "summary.md"
    assert asked(old, new, "--gates", str(rules), "--summary", str(summary)).exit_code == 0
    assert "floor" in summary.read_text() and "evalflows explain" not in summary.read_text(), "nothing is kept"
    rules.write_text(json.dumps({"gates": [{"superiority": ["correct"]}]}))
    sliced = asked(old, new, "--gates", str(rules), "--slice", "topic")
    assert "correct@metadata.topic=a is not better" in sliced.stdout, "a list of metrics is rules, too"
    message = asked(old, new, "--summary", str(summary)).stderr
    assert message.startswith("evalflows: decide: got no rule, wanted --metric, "), "the Action gives --summary itself"
    assert Store().query("select count(*) from source.experiments") == [(0,)], "nothing is kept"
    kept = asked(old, new, "--metric", "correct=.05", "--store", "--all")
    assert kept.stdout.count("  1 → 0") == failed.stdout.count("  1 → 0")
    assert kept.exit_code == 1 and "kept in " in kept.stderr
    (rows,) = ask(Store(), ("select conclusion from decisions", []))
    assert rows == [("FAIL",)]
    shown = CliRunner().invoke(cli, ["explain", "decide", "--again"])
    assert shown.exit_code == 0 and "FAIL" in shown.stdout, shown.output


@pytest.mark.parametrize(
    "options", [(), ("--gates", "RULES", "--slice", "topic"), ("--gates", "RULES", "--cluster", "doc")]
)
def test_a_store_changes_no_figure(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Not the last digit, nor a remark, an example or a slice: of repetitions, errors, missing values, other inputs."""
    rules = tmp_path / "rules.yaml"
    gates = [
        {"name": "no worse", "non_inferiority": {"right": 0.1, "grade": 0.05}},
        {"name": "floor", "superiority": {"right": 0}, "confident_thresholds": {"right": 0.5}},
    ]
    metrics = {"right": {"pass_k": [1]}, "grade": {"range": [0, 1], "margin": 0.1}}
    rules.write_text(json.dumps({"gates": gates, "metrics": metrics}))
    files = []
    for seed, name in enumerate(("old", "new", "short")):
        made, rows = np.random.default_rng(seed), []
        for n, repetition in ((n, repetition) for n in range(50 - 10 * (name == "short")) for repetition in range(2)):
            scores: dict[str, Any] = {
                "right": float(made.random() < 0.8 - seed / 5),
                "grade": round(made.random(), 2),
                "cost": n % 3,
            }
            scores |= {"grade": None} if n % 17 == repetition else {}
            failed = {**dict.fromkeys(scores), "error": "boom"} if name == "new" and n % 23 == 0 else {}
            fields = {"id": n, "repetition": repetition, "topic": "abc"[n % 3], "doc": f"d{n // 2}"}
            asks = {"question": f"What is {n}{' now' * (name == 'short' and n == 5)}?", "answer": f"<think>{n}"}
            rows += [fields | asks | scores | failed] if (name, n, repetition) != ("new", 9, 1) else []
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        files.append(str(path))
    given = [*files, *(str(rules) if one == "RULES" else one for one in options), "--json", "-"]
    alone, kept = (asked(*given, *option) for option in ((), ("--store",)))
    assert alone.exit_code == kept.exit_code == (1 if options else 0), alone.output
    pattern = r"\b(?:exp|group|dec)-[\w-]+|\d{4}-\d\d-\d\dT[\d:.+]+"
    contents = []
    for done in (alone, kept):
        names: dict[str, str] = {}
        text = re.sub(pattern, lambda found: names.setdefault(found[0], f"id {len(names)}"), done.stdout)  # noqa: B023
        contents.append(json.loads(text) | {"next": None, "next_is_for_person": None})
    for content in contents:
        for one in (*content["decisions"], *content["experiments"]):
            one |= dict.fromkeys(("manifest_sha256", "started_at", "ended_at", "decided_at"))
    assert contents[0] == contents[1]
    assert contents[0]["worst_examples"] and contents[0]["failures"] and len(contents[0]["metrics"]) >= 9


def test_a_verdict_that_its_interval_does_not_show_is_explained_below_its_row(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=100)
    scores = 0.507 + 0.2 * (noise - noise.mean()) / noise.std()
    old = write(tmp_path / "old.jsonl", {f"q{n}": 0.55 for n in range(100)})
    new = write(tmp_path / "new.jsonl", {f"q{n}": score for n, score in enumerate(scores.clip(0, 1))})
    printed = asked(old, new, "--metric", "correct=0.02").stdout.splitlines()
    (row,) = (number for number, line in enumerate(printed) if line.startswith("correct "))
    low, high = (float(end) for end in re.findall(r"[+-][0-9.]+", printed[row])[-2:])
    assert low < 0 < high and printed[row].endswith("  worse")
    assert printed[row + 1].startswith("correct: significantly different; the interval includes 0 because it allows")


def test_metrics_of_rules_and_worse_ones_come_first_and_stay(tmp_path: Path) -> None:
    def score(n: int) -> float:
        return n * 7 % 10 / 10

    same = dict.fromkeys("abcdefghijklmnopxyz", score)
    old = write(tmp_path / "old.jsonl", OLD, **same)
    new = write(tmp_path / "new.jsonl", OLD, **same | {"y": lambda n: score(n) / 2})
    printed = asked(old, new, "--metric", "z=0.2", "--metric", "x=0.2").stdout.splitlines()
    rows = printed[printed.index(next(line for line in printed if line.startswith("metric "))) + 1 :]
    assert [row.split()[0] for row in rows[:4]] == ["z", "x", "y", "a"]
    assert any(line.startswith("not shown: ") and " metrics" in line for line in rows)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("OLD",), "got the results of one system, wanted a baseline and a candidate"),
        (("OLD", "OTHER"), "got no id in both, such as 'q0' and 'x0', wanted results on the same examples"),
        (("OLD", "NEW", "--metric", "corect=.1"), "--metric corect: got no such metric, wanted correct"),
        (("OLD", "NEW", "--metric", "correct=-1"), "wanted a margin above 0"),
        (("OLD", "NEW", "--lower-is-better", "corect"), "--lower-is-better corect: got no such metric, wanted correct"),
        (("OLD", "NEW", "--metric", "correct"), "--metric: got 'correct', wanted NAME=NUMBER"),
        (("OLD", "NEW", "--cluster", "tpic"), "cluster: got 'tpic', wanted a field of the rows: topic"),
        (("OLD", "NEW", "--slice", "tpic", "--metric", "correct=.1"), "slice: got 'tpic', wanted a field of the rows"),
        (("OLD", "NEW", "--gates", "OLD"), "not YAML"),
        (("OLD#other", "NEW"), "got the system 'other', wanted"),
        (("OLD", "NEW", "--format", "promptfoo"), "wanted promptfoo"),
        (("OLD", "NEW", "--gates", "TYPO"), "/typo.yaml: gates.0.metric: no such field, wanted one of: name, "),
        (("OLD", "NEW", "--gates", "LIST"), "/list.yaml: gates: got ['floor'], wanted a list of gates"),
        (("OLD", "NEW", "--gates", "SIGN"), "/sign.yaml: gates.0: "),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], wanted: str) -> None:
    files = {
        "OLD": write(tmp_path / "old.jsonl", OLD, topic="a"),
        "NEW": write(tmp_path / "new.jsonl", NEW, topic="a"),
        "OTHER": write(tmp_path / "other.jsonl", {one.replace("q", "x"): value for one, value in OLD.items()}),
    }
    gates = {
        "TYPO": {"name": "a", "metric": 1},
        "LIST": "floor",
        "SIGN": {"non_inferiority": {"correct": -1}, "name": "a"},
    }
    for name, gate in gates.items():
        path = tmp_path / f"{name.lower()}.yaml"
        path.write_text(json.dumps({"gates": [gate]}))
        files[name] = str(path)
    given = [files.get(one, one.replace("OLD", files["OLD"])) for one in arguments]
    done, as_json = asked(*given), asked(*given, "--json", "-")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert wanted in done.stderr
    assert done.stderr == f"evalflows: {json.loads(as_json.stderr)['error']['message']}\n"


def test_a_cell_that_is_no_number_is_missing_or_refused(tmp_path: Path) -> None:
    """Whatever the column of one file looks like, if the other file or a rule calls it a metric."""

    def table(name: str, *cells: str) -> str:
        path = tmp_path / name
        path.write_text("id,tone,other\n" + "".join(f'{n},"{cells[n % len(cells)]}",1\n' for n in range(40)))
        return str(path)

    old, words = table("old.csv", "1", "0.5"), ("0", "N/A", "null", "-", "NaN", "", "None", "na")
    (metric,) = (
        one
        for one in json.loads(asked(old, table("words.csv", *words), "--json", "-").stdout)["metrics"]
        if (one["metric"], one["experiment"]) == ("tone", "words")
    )
    assert (metric["scored"], metric["missing"]) == (5, 35)
    assert "5 x words, tone: the file has 'N/A' (example " in asked(old, str(tmp_path / "words.csv"), "--all").stdout
    empty = asked(old, table("empty.csv", ""), "--metric", "tone=.1")
    assert empty.exit_code == 3 and "40 of 40 values of tone are missing in empty" in empty.stdout
    for cells in (("1", "85%"), ("good", "0.5", "bad"), ("1", "0,5"), ("Infinity", "1")):
        path = table("new.csv", *cells)
        for sides in ((old, path), (path, old)):
            done = asked(*sides)
            number, got = next((n, cell) for n, cell in enumerate(cells, start=1) if cell not in ("1", "0.5"))
            assert done.exit_code == 2 and f"{path}: result {number}: tone: got '{got}', wanted" in done.stderr
    texts = [table(f"{name}.csv", "good", "bad") for name in "ab"]
    assert asked(*texts).exit_code == 0, "a column of texts in both is no metric"
    assert "a.csv: result 1: tone: got 'good', wanted a finite" in asked(*texts, "--threshold", "tone=1").stderr


def test_a_candidate_does_not_pass_by_leaving_examples_out(tmp_path: Path) -> None:
    half = dict([*OLD.items()][: N // 2])
    old, new = write(tmp_path / "old.jsonl", OLD), write(tmp_path / "new.jsonl", half | {"z1": 1.0})
    for option in ((), ("--store",)):
        done = asked(old, new, "--metric", "correct=.1", *option)
        assert done.exit_code == 3, done.output
        lacking = "100 of the baseline's 200 examples are not in it: counted as missing; --only-shared leaves them out"
        assert f"{new}: {lacking}\n" in done.stdout
        assert f"{new}: 1 of its 101 examples are not in the baseline, left out: z1\n" in done.stdout
        assert f"no row in {new} (example q100)" in done.stdout
        shared = asked(old, new, "--metric", "correct=.1", "--only-shared", *option)
        assert shared.exit_code == 0 and "not in it: left out, by --only-shared\n" in shared.stdout
        assert "only the 100 shared ones" in shared.stdout
    assert decide(OLD, half, margin=0.1).conclusion == "NOT ENOUGH EVIDENCE"
    assert decide(OLD, half, margin=0.1, only_shared=True).conclusion == "PASS"
    proof = str(tmp_path / "proof.json")
    for option in ((), ("--only-shared",)):
        asked(old, new, "--metric", "correct=.1", "--evidence", proof, *option)
        assert CliRunner().invoke(cli, ["verify", proof]).exit_code == 0
    more = write(tmp_path / "more.jsonl", OLD, quality=0.5)
    assert "different examples" not in asked(more, old, "--metric", "correct=.1").stdout, "it lacks a score alone"


def test_a_harm_is_not_decided_in_the_wrong_direction(tmp_path: Path) -> None:
    old, new = (write(tmp_path / f"{name}.jsonl", side) for name, side in (("old", OLD), ("new", NEW)))
    harms = [write(tmp_path / f"{name}.jsonl", {"q": 1}) for name in ("old-rate", "new-rate")]
    for path, side in zip(harms, (OLD, NEW), strict=True):
        rows = [{"id": one, "error_rate": value, "words": 7.5} for one, value in side.items()]
        Path(path).write_text("\n".join(map(json.dumps, rows)))
    assert "taken as scores from 0 to 1: correct, higher counts as better\n" in asked(old, new).stdout
    compared = asked(*harms).stdout
    assert "taken as scores from 0 to 1: error_rate, lower counts as better\n" in compared
    assert "higher counts as better, if --lower-is-better does not say it: words\n" in compared
    assert "lower counts as better by the name, if --higher-is-better does not say it: error_rate\n" in compared
    assert "better in error_rate -0.200" in compared
    rules = tmp_path / "rules.yaml"
    composite = {"name": "both", "weights": {"error_rate": 1, "words": 1}}
    gate = {"name": "floor", "thresholds": {"both": 0.5}}
    metrics = {"words": {"range": [0, 10]}, "error_rate": {"range": [0, 1]}}
    rules.write_text(json.dumps({"gates": [gate], "composites": [composite], "metrics": metrics}))
    options = "wanted --lower-is-better error_rate or --higher-is-better error_rate"
    for rule in ("--metric=error_rate=.1", f"--gates={rules}"):
        refused = asked(*harms, rule)
        assert refused.exit_code == 2 and f"error_rate: got no direction, {options}" in refused.stderr
    for option, code in (("--lower-is-better", 0), ("--higher-is-better", 1)):
        assert asked(*harms, "--metric=error_rate=.1", option, "error_rate").exit_code == code
    both = asked(*harms, "--lower-is-better", "words", "--higher-is-better", "words")
    assert "--higher-is-better: got 'words', which --lower-is-better has too" in both.stderr

    assert asked(*harms, "--store", "--lower-is-better", "error_rate").exit_code == 0
    approval = CliRunner().invoke(cli, ["baseline", "approve", "new-rate"])
    assert approval.stdout.startswith("baseline new-rate: new-rate (exp-"), approval.output
    assert "decide approved:new-rate CANDIDATE" in approval.stderr and "SPEC" not in approval.stderr
    assert CliRunner().invoke(cli, ["baseline", "approve", "old-rate", "--name", "sam's"]).exit_code == 0
    stored = asked("approved:sam's", harms[1], "--metric=error_rate=.1")
    assert (stored.exit_code, stored.stdout.splitlines()[0]) == (0, "read: store: 200 results; table: 200 results")
    assert "got no approved experiment of that name in " in asked("approved:other", new).stderr


def test_an_approved_baseline_and_one_without_the_fields_decide_as_the_file_does(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"doc": lambda n: f"d{n // 10}", "topic": lambda n: n % 2 == 0}
    old, new = (write(tmp_path / f"{name}.jsonl", side, **fields) for name, side in (("old", OLD), ("new", NEW)))
    assert asked(old, new, "--store").exit_code == 0
    assert CliRunner().invoke(cli, ["baseline", "approve", "old"]).exit_code == 0
    bare = write(tmp_path / "bare.jsonl", OLD, doc=None)
    options = ("--metric", "correct=.3", "--cluster", "doc", "--slice", "topic")
    rules = [
        [
            line
            for line in asked(baseline, new, *options).stdout.splitlines()
            if "correct@" in line or "clusters" in line
        ]
        for baseline in (old, "approved:old", bare)
    ]
    assert len(rules[0]) > 2 and rules[0] == rules[1] == rules[2]
    assert "correct@metadata.topic=true" in "".join(rules[0])
    assert asked(old, new, "--store", "--cluster", "doc").exit_code == 0
    assert CliRunner().invoke(cli, ["baseline", "approve", "old"]).exit_code == 0
    assert "20 clusters" in asked("approved:old", new, "--metric", "correct=.3").stdout, "those of its dataset"
    asks = {text: write(tmp_path / f"asks{n}.jsonl", OLD, inputs=text.format) for n, text in enumerate(("{}?", "{}!"))}
    assert asked(asks["{}?"], write(tmp_path / "other.jsonl", NEW, inputs="{}?".format), "--store").exit_code == 0
    assert CliRunner().invoke(cli, ["baseline", "approve", "asks0"]).exit_code == 0
    refused = asked("approved:asks0", asks["{}!"], "--metric", "correct=.3")
    assert (refused.exit_code, "got no id with the same inputs in both" in refused.stderr) == (2, True)


def test_the_words_of_a_name_tell_whether_it_is_a_harm(tmp_path: Path) -> None:
    """A word that turns it around makes it none."""
    harms = "edit_distance noise_sensitivity(mode=relevant) jailbreak_success pii_leak contradiction ter tokens_used"
    harms += " inference_runtime toxic_frac,robustness bits_per_byte errorRate num_output_tokens HallucinationScore"
    others = "no_errors hallucination_free bias_detection_accuracy steps_correct time_saved lossless costume timeliness"
    names = [*harms.split(), *others.split()]
    path = write(tmp_path / "old.jsonl", OLD, **dict.fromkeys(names, 0.5))
    *_, note = json.loads(asked(path, path, "--json", "-").stdout)["notes"]
    said = "lower counts as better by the name, if --higher-is-better does not say it: "
    assert note == said + ", ".join(harms.split())


def test_units_and_ranges_that_are_probably_others_are_named(tmp_path: Path) -> None:
    old, new = (
        write(
            tmp_path / f"{name}.jsonl",
            {one: (0.5 + n / 400) * unit for n, one in enumerate(OLD)},
            stars=lambda n: n % 5 + 1,
            deviation=lambda n: (n * 7 % 20 - shift) / 4,  # noqa: B023
        )
        for name, unit, shift in (("old", 1, 9), ("new", 100, 11))
    )
    notes = json.loads(asked(old, new, "--metric", "stars=.5", "--json", "-").stdout)["notes"]
    assert f"correct: up to 99.75 in {new}, but from 0 to 1 in {old}: in other units?" in notes
    assert "stars: whole numbers from 1 to 5; if it has no others, `range: [1, 5]` in --gates declares it" in notes
    printed = asked(old, new).stdout
    assert "declares it" not in printed, "without a rule, nothing rests on it"
    assert "deviation: no range is declared" not in printed, "its values have signs"


def test_other_inputs_of_an_id_are_missing_values(tmp_path: Path) -> None:
    """A candidate cannot pass by changing the text of what it fails; blanks are no change."""

    def rows(name: str, text: str, fails: int = 0) -> str:
        lines = [{"id": n, "inputs": f"{text} {n % 7}", "ok": int(n >= fails), "doc": n // 4} for n in range(200)]
        (tmp_path / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return str(tmp_path / name)

    same, other = rows("a.jsonl", "How much is"), rows("b.jsonl", "What is")
    assert "got no id with the same inputs in both" in asked(same, other).stderr
    fails = rows("c.jsonl", "How  much is ", fails=40)
    assert (
        "other inputs" not in asked(same, fails).stdout and "200 pairs" in asked(same, fails, "--metric=ok=.05").stdout
    )
    lines = Path(other).read_text().splitlines()[:40] + Path(same).read_text().splitlines()[40:]
    Path(other).write_text("\n".join(lines))
    changed = asked(same, other, "--metric", "ok=.05")
    count = f"{other}: 40 ids have other inputs than in {same} (0, 1, 2): "
    assert count + "counted as missing; --only-shared leaves them out" in changed.stdout
    assert changed.exit_code == 3 and "40 pairs with a missing value could flip this" in changed.stdout
    shared = asked(same, other, "--metric", "ok=.05", "--only-shared")
    assert (
        shared.exit_code == 0 and f"{count}left out, by --only-shared" in shared.stdout and "160 pairs" in shared.stdout
    )
    grouped = asked(same, same, "--metric", "ok=.2", "--cluster", "doc", "--slice", "doc", "--json", "-")
    document = json.loads(grouped.stdout)
    rules = document["decisions"][0]["rules"]
    assert [rule["metric"] for rule in rules][:2] == ["ok", "ok@metadata.doc=0"] and len(rules) == 51
    assert "50 clusters" in rules[0]["text"] and "doc" not in {one["metric"] for one in document["metrics"]}


def test_repetitions_are_no_independent_examples(tmp_path: Path) -> None:
    """Perturbations of an instance are metrics; where nothing tells of repetitions, the limits name equal inputs."""
    right = {"old": drawn(60, 0.75), "new": [one or n % 4 == 0 for n, one in enumerate(drawn(60, 0.75))]}
    files, tables = [], []
    for name, side in right.items():
        (tmp_path / name).mkdir()
        rows = [
            {
                "instance_id": f"id{n}",
                "train_trial_index": 0,
                "stats": [{"name": {"name": "exact_match", "split": "test"}, "count": 1, "mean": float(one)}],
                **({"perturbation": {"name": kind}} if kind else {}),
            }
            for n, one in enumerate(side)
            for kind in (None, "robustness", "fairness")
        ]
        (tmp_path / name / "per_instance_stats.json").write_text(json.dumps(rows))
        files.append(str(tmp_path / name))
        cells = "".join(f"{n}-{k},q{n},What is {n}?,{int(one)}\n" for n, one in enumerate(side) for k in range(3))
        (tmp_path / f"{name}.csv").write_text(f"id,question_id,question,ok\n{cells}")
        tables.append(str(tmp_path / f"{name}.csv"))
    helm = asked(*files, "--metric", "exact_match=.1", "--cluster", "instance_id").stdout
    assert "60 clusters" in helm and "exact_match,robustness" in helm
    note = "question_id: 180 examples have 60 values: they count as independent without --cluster question_id"
    limit = "the 180 examples have 60 different inputs: equal ones count as independent"
    for option in ((), ("--metric=ok=.1",), ("--metric=ok=.1", "--store")):
        printed = asked(*tables, *option).stdout
        assert (printed.count(note), printed.count(limit)) == (2, 1), option
    ends = [
        [
            float(end)
            for end in re.findall(r"better: \S+ \[(.*?), (.*?)\]", asked(*given, *rule, "--cluster", of).stdout)[0]
        ]
        for given, *rule, of in (
            (files, "--superiority", "exact_match", "instance_id"),
            (tables, "--superiority", "ok", "question_id"),
            (tables, "--superiority", "ok", "inputs"),
        )
    ]
    assert ends[0] == pytest.approx(ends[1], abs=0.005) and ends[1] == ends[2]


def test_the_composites_of_a_spec_are_decided_on(tmp_path: Path) -> None:
    """From the scores of each answer, with the same figures in a store and by evidence; parts may be missing."""
    rules, proof = tmp_path / "rules.yaml", str(tmp_path / "proof.json")
    composite: dict[str, Any] = {"name": "quality", "weights": {"correct": 3, "harm": 1}}
    gate = {"name": "whole", "non_inferiority": {"quality": 0.2}}
    metrics = {"harm": {"higher_is_better": False, "range": [0, 2]}}
    rules.write_text(json.dumps({"gates": [gate], "composites": [composite], "metrics": metrics}))
    old, new = (
        write(tmp_path / f"{n}.jsonl", side, harm=lambda n: n % 3 / 2) for n, side in (("old", OLD), ("new", OLD))
    )
    Path(new).write_text(Path(new).read_text().replace('"harm": 1.0', '"harm": null', 1))
    texts = []
    for option in ("--evidence", "--store"):
        done = asked(
            old, new, "--gates", str(rules), "--json", "-", option, *([proof] if option == "--evidence" else [])
        )
        document = json.loads(done.stdout)
        texts.append([rule["text"] for rule in document["decisions"][0]["rules"]])
        means = {(one["experiment"], one["metric"]): one["mean"] for one in document["metrics"]}
        harm, correct = np.mean([n % 3 / 2 for n in range(N)]), np.mean([*OLD.values()])
        assert means["old", "quality"] == pytest.approx((3 * correct + (1 - harm / 2)) / 4)
        assert "harm is missing: the file has no score" in json.dumps(document["failures"])
    assert texts[0] == texts[1] and "199 pairs" in texts[0][0]
    assert CliRunner().invoke(cli, ["verify", proof]).exit_code == 0
    rules.write_text(json.dumps({"gates": [gate], "composites": [composite | {"weights": {"corect": 1}}]}))
    assert "composite 'quality': got the part 'corect', wanted correct" in asked(old, new, "--gates", str(rules)).stderr


def test_python_decides_on_scores_of_any_form() -> None:
    """As gates do, and nothing of Prefect or pandas is loaded for it."""
    old, new = list(OLD.values()), list(NEW.values())
    frames = [pd.DataFrame({"id": [*OLD], "score": side}) for side in (old, new)]
    forms = [(OLD, NEW), (old, new), (np.array(old), np.array(new)), frames, [pd.Series(side) for side in (old, new)]]
    forms += [({one: [value, value] for one, value in side.items()} for side in (OLD, NEW))]
    for baseline, candidate in forms:
        decision = decide(baseline, candidate, margin=0.05)
        (rule,) = decision.rules
        assert (decision.conclusion, round(rule.value or 0, 3)) == ("FAIL", -0.2), type(baseline)
    shuffled = pd.Series(NEW).sample(frac=1, random_state=0)
    assert decide(pd.Series(OLD), shuffled, margin=0.05).rules[0].value == decide(OLD, NEW, margin=0.05).rules[0].value
    assert decide(OLD, OLD, margin=0.1).conclusion == "PASS"
    lines = str(decide(OLD, NEW, margin=0.05)).splitlines()
    assert lines[0] == "FAIL  gate release: candidate against baseline"
    assert lines[1].startswith("  broken  score is worse by more than 0.05: -0.200 ") and len(lines) <= 4
    of_id = {one: int(one[1:]) // 2 for one in OLD}
    numbered, clustered = dict(enumerate(old)), frames[0].assign(group=[*of_id.values()])
    for side, clusters in ((OLD, of_id), (numbered, pd.Series([*of_id.values()])), (old, [*of_id.values()])):
        assert f"{N // 2} clusters" in decide(side, side, margin=0.1, clusters=clusters).rules[0].text
    assert f"{N // 2} clusters" in decide(clustered, clustered, margin=0.1, clusters="group").rules[0].text
    with pytest.raises(InputError, match=f"clusters: got no group of {N} of {N} ids, such as"):
        decide(OLD, OLD, margin=0.1, clusters=dict(enumerate(of_id.values())))
    assert decide(OLD, NEW, superiority={"score": 0}).conclusion == "FAIL"
    for wrong, wanted in (
        ({}, "got no scores"),
        (["good"], "got 'good', wanted a score"),
        ({"z": 1.0}, "no id in both"),
    ):
        with pytest.raises(InputError, match=wanted):
            decide(OLD, wrong, margin=0.1)
    with pytest.raises(InputError, match="got no rule, wanted margin"):
        decide(OLD, NEW)
    program = "import sys; from evalflows import decide; print(decide([1.0] * 40, [1.0] * 40, margin=.2).conclusion)"
    program += "; assert not {'prefect', 'pandas'} & {*sys.modules}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "PASS\n", done.stderr


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_decision_proves_itself_by_a_file(tmp_path: Path) -> None:
    """Without a store: a changed figure, score or conclusion is noticed, also by who makes the hash anew."""
    old = write(tmp_path / "old.jsonl", OLD, topic=lambda n: "ab"[n % 2], doc=lambda n: n // 2)
    new = write(tmp_path / "new.jsonl", NEW | {"q7": None}, topic=lambda n: "ab"[n % 2], doc=lambda n: n // 2)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    (tmp_path / "signers").write_text(f"ada {(tmp_path / 'key.pub').read_text()}")
    proof = str(tmp_path / "proof.json")
    rules = ["--metric", "correct=.05", "--threshold", "correct=.5", "--slice", "topic", "--cluster", "doc"]
    made = asked(old, new, *rules, "--evidence", proof, "--sign-evidence", str(tmp_path / "key"))
    assert made.exit_code == 1, made.output

    def verified(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["verify", proof, *arguments])

    done = verified("--signers", str(tmp_path / "signers"))
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "verified, signed by ada"), done.output
    assert done.stdout.startswith("FAIL  gate decide: new against old\n")
    assert "gate decide: the scores of 200 examples give the same figures" in done.stdout
    text = Path(proof).read_text()
    assert '"q7' not in text and "old.jsonl" not in text
    content = json.loads(text)

    def forged(change: Callable[[dict[str, Any]], object], *, rehashed: bool) -> str:
        changed = json.loads(text)
        change(changed["decisions"][0])
        if rehashed:
            body = {name: value for name, value in changed.items() if name not in ("sha256", "signature")}
            whole = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            changed["sha256"] = hashlib.sha256(whole.encode()).hexdigest()
        Path(proof).write_text(json.dumps(changed))
        found = verified()
        assert found.exit_code == 1 and found.stderr.count("\n") == 1, found.output
        assert found.stdout == "", "no conclusion of a document that does not hold"
        return found.stderr

    def passes(one: dict[str, Any]) -> None:
        one["conclusion"] = "PASS"

    def better(one: dict[str, Any]) -> None:
        one["rules"][0]["value"] = 0.1

    def unchecked(one: dict[str, Any]) -> None:
        one["conclusion"], one["is_recomputed"] = "PASS", False

    assert "its hash differs" in forged(passes, rehashed=False)
    assert "need a signature" in forged(unchecked, rehashed=True), "the writer of a file does not excuse it"
    assert "its scores give FAIL, not PASS" in forged(passes, rehashed=True)
    assert "its scores give correct value" in forged(better, rehashed=True)
    assert "it has an example twice" in forged(lambda one: one["examples"].append(one["examples"][0]), rehashed=True)
    content["decisions"][0]["title"] = "gate decide: other"
    content["decisions"][0]["rules"][0]["text"] = "correct is much better"
    whole = json.dumps(
        {name: value for name, value in content.items() if name not in ("sha256", "signature")},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    Path(proof).write_text(json.dumps(content | {"sha256": hashlib.sha256(whole.encode()).hexdigest()}))
    assert verified("--signers", str(tmp_path / "signers")).exit_code == 4, "no longer signed"
    assert "gate decide: other" in verified().stdout and "much better" not in verified().stdout
    assert "names and limits are those that the document states" in verified().stdout
    for broken in ("[1]", "{}", json.dumps({**json.loads(text), "decisions": []}), text[:-20]):
        Path(proof).write_text(broken)
        assert (verified().exit_code, verified().stderr.count("\n")) == (2, 1), broken[:60]


def test_a_gate_on_a_metric_without_a_range_is_recomputed_without_one(tmp_path: Path) -> None:
    """Its scores lie between 0 and 1, which a file of results would be taken to mean."""
    rules = tmp_path / "rules.yaml"
    gate = {"name": "free", "non_inferiority": {"correct": 0.5}}
    rules.write_text(json.dumps({"gates": [gate], "metrics": {"correct": {"range": None}}}))
    graded = [{f"q{n}": 0.5 + (n + shift) % 7 / 20 for n in range(60)} for shift in (0, 1)]
    files = [write(tmp_path / f"{name}.jsonl", side) for name, side in zip("ab", graded, strict=True)]
    proof = str(tmp_path / "proof.json")
    assert asked(*files, "--gates", str(rules), "--evidence", proof).exit_code == 0
    done = CliRunner().invoke(cli, ["verify", proof])
    assert (done.exit_code, "gate free: the scores of 60 examples give" in done.stdout) == (0, True), done.output
