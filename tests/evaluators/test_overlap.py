"""rouge, bleu, chrf, ter and corpus_bleu: published values, several references, and what decides a version."""

import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows as rows_of

from evalflows import run
from evalflows.engine.spec_evaluators import evaluator_version, prepare_evaluator
from evalflows.evaluators import bleu, chrf, corpus_bleu, rouge, ter
from evalflows.evaluators.score import Score
from evalflows.specs import ExperimentSpec, InputError
from evalflows.specs.errors import CallError
from evalflows.specs.evaluator import EvaluatorSpec

SYSTEM = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
REFERENCES = [
    ["The dog bit the man.", "The dog had bit the man."],
    ["It was not unexpected.", "No one was surprised."],
    ["The man bit him first.", "The man had bitten the dog."],
]
"""The example of sacrebleu's README, whose BLEU is 48.53 there."""


def one(function: Any, answer: str, reference: Any, **settings: Any) -> Score:
    score = function({"output": answer}, {"answer": reference}, **settings)
    assert isinstance(score, Score)
    return score


def rouges(answer: str, reference: Any, **settings: Any) -> dict[str, Any]:
    scores = rouge({"output": answer}, {"answer": reference}, **settings)
    assert scores is not None
    return {score.key: pytest.approx(score.value, abs=1e-9) for score in scores}


def test_corpus_bleu_is_the_published_one_and_takes_any_number_of_references() -> None:
    def corpus(answers: list[str | None], references: list[Any], **settings: Any) -> Score:
        outputs = [None if answer is None else {"output": answer} for answer in answers]
        score = corpus_bleu(outputs, [{"answer": reference} for reference in references], **settings)
        assert score is not None
        return score

    whole = corpus([*SYSTEM], REFERENCES)
    assert round(float(whole.value or 0), 2) == 48.53
    assert (whole.comment or "").startswith("BLEU = 48.53 82.4/50.0/45.5/37.5 (BP = 0.943 ")
    assert re.fullmatch(
        r"nrefs:2\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:.+", (whole.metadata or {})["signature"]
    )
    assert corpus([*SYSTEM, "left out"], [*REFERENCES, None]).value == whole.value
    assert "nrefs:var" in (corpus([*SYSTEM], [REFERENCES[0][0], *REFERENCES[1:]]).metadata or {})["signature"]
    assert corpus(["a b c d", None], ["a b c d", "e f g h"]).value < 50, "a failed run is an empty answer"
    assert corpus(["a b c d"], ["a b c d"]).value == 100.0
    assert corpus_bleu([{"output": "a"}], [None]) is None
    with pytest.raises(TypeError, match="list it under summary_evaluators"):
        corpus_bleu({"output": "a"}, {"answer": "a"})  # type: ignore[arg-type]


def test_each_measure_of_one_answer_and_its_signature() -> None:
    cat = "the cat sat on the mat"
    assert rouges("police killed the gunman", "police kill the gunman") == {
        "rouge1": 0.75, "rouge2": 1 / 3, "rougeL": 0.75, "rougeLsum": 0.75,
    }, "the example of Lin (2004)"  # fmt: skip
    assert rouges("police killed the gunman", "police kill the gunman", stemmer=True, kinds=[1]) == {"rouge1": 1.0}
    assert rouges(cat, ["a dog", cat], kinds="L") == {"rougeL": 1.0}, "the best reference"
    (first,) = rouge({"output": "a b"}, {"answer": "a b c d"}, kinds=[1]) or []
    assert first.metadata is not None and (first.metadata["precision"], first.metadata["recall"]) == (1.0, 0.5)
    assert first.metadata["signature"].startswith("rouge1|no stem|nrefs:1|version:")
    assert one(bleu, cat, ["a dog", cat]).value == one(chrf, cat, cat).value == 100.0
    assert (
        0
        < float(one(bleu, "The cat", "the cat sat").value or 0)
        < float(one(bleu, "The cat", "the cat sat", lowercase=True).value or 0)
    )
    assert one(chrf, "кошка", "кошки").value == pytest.approx(one(chrf, "koška", "košky").value)
    assert "nw:2" in (one(chrf, "a b", "a c", word_order=2).metadata or {})["signature"]
    assert [one(ter, answer, "a b c d").value for answer in ("a b c d", "a b d c", "", "x " * 8)] == [0, 25, 100, 200]
    assert one(bleu, "", "a").value == one(chrf, "", "a").value == 0.0
    for function in (rouge, bleu, chrf, ter):
        assert function({"output": "a"}, None) is function({"output": "a"}, {"answer": ["", None]}) is None
    with pytest.raises(CallError, match="texts of 300 and 300 words are too long to compare"):
        one(ter, "a " * 300, "b " * 300)
    with pytest.raises(ValueError, match=r"reference: got 'кошка', wanted letters from a to z or digits"):
        rouges("кошка", "кошка")


def test_the_version_has_the_settings_and_the_package_which_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(**fields: Any) -> str:
        spec = EvaluatorSpec.model_validate({"use": "bleu", **fields})
        return evaluator_version(prepare_evaluator(spec), {})

    now = version()
    assert now != version(args={"lowercase": True})
    monkeypatch.setattr("evalflows.evaluators.declarations.version", lambda name: "9.9")
    assert now != version(), "another version of the package may score otherwise"

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("evalflows.evaluators.declarations.version", missing)
    with pytest.raises(InputError, match=r"^evaluator 'bleu': got no package sacrebleu, wanted `pip install 'evalf"):
        version()


def spec(tmp_path: Path, references: list[Any], *evaluators: Any, **fields: Any) -> ExperimentSpec:
    rows = [
        {"id": f"q{n}", "inputs": {"q": f"{n}"}, "reference_outputs": {"a": one}} for n, one in enumerate(references)
    ]
    lines = [json.dumps({"id": f"q{n}", "outputs": {"a": SYSTEM[n]}}) for n in range(len(references))]
    (tmp_path / "answers.jsonl").write_text("\n".join(lines))
    target = {"name": "mt", "kind": "recorded", "path": str(tmp_path / "answers.jsonl")}
    given = {"name": "mt", "dataset": {"rows": rows}, "targets": [target], "evaluators": [*evaluators], **fields}
    return ExperimentSpec.model_validate(given)


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_an_experiment_has_scores_of_answers_and_of_the_corpus(tmp_path: Path) -> None:
    run(spec(tmp_path, REFERENCES, "bleu", "rouge", "ter", summary_evaluators=["corpus_bleu"]))
    found = dict(rows_of("select metric, count(*) from scores where status = 'scored' group by all"))
    assert {name: found[name] for name in ("bleu", "rouge1", "rougeLsum", "ter", "corpus_bleu")} == {
        "bleu": 3, "rouge1": 3, "rougeLsum": 3, "ter": 3, "corpus_bleu": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("use", "args", "message"),
    [
        ("bleu", {"tokenize": "mecab"}, "tokenize: got 'mecab', wanted 13a, intl, zh, char, none"),
        ("chrf", {"word_order": -1}, "word_order: got -1, wanted a whole number from 0 to 9"),
        ("rouge", {"kinds": [3]}, "kinds: got [3], wanted any of 1, 2, L, Lsum"),
        ("ter", {}, "example 'q1': reference: got 7, wanted a text or a list of texts"),
    ],
)
def test_mistakes_are_found_before_the_run(tmp_path: Path, use: str, args: dict[str, Any], message: str) -> None:
    references = ["a", "b" if args else 7]
    with pytest.raises(InputError, match=f"evaluator '{use}': {re.escape(message)}"):
        run(spec(tmp_path, references, {"use": use, "args": args}))
    if use != "ter":
        return
    with pytest.raises(InputError, match=r"evaluator 'corpus_bleu': example 'q1': reference: got 7"):
        run(spec(tmp_path, references, "exact_match", summary_evaluators=["corpus_bleu"]))
