"""Texts that attack whatever shows them, in every place where a text of others can stand."""

from typing import Any

from evalflows.specs.experiment import ExperimentSpec

ATTACKS = {
    "script": "<script>document.title = 'owned'; alert(1)</script>",
    "image": "<img src=x onerror=\"document.title = 'owned'; alert(2)\">",
    "closing": "</td></table></main></script></style>--><svg onload=alert(3)>",
    "quotes": '" onmouseover="alert(4)" x=\'',
    "template": "{{ 7 * 7 }} {% include '/etc/passwd' %} ${7*7}",
    "markdown": "[click](javascript:alert(5)) ![x](http://rebound.test/image) # heading | a | b |",
    "ansi": "\x1b[31mred\x1b[2J\x1b]0;owned\x07\x9b31m",
    "bidi": "invoice\u202efdp.exe \u2066isolated\u2069 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "formula": '=HYPERLINK("http://rebound.test", "click")',
    "long": "word " * 200_000,
    "one word": "x" * 20_000,
    "lines": "\n" * 50 + "last",
}
"""Answers, by what they try."""

NAME = '"><script>alert(6)</script>\x1b[31m\u202e=1+1'
"""Part of each name: of experiments, targets, metrics, datasets, splits, people."""


def rows() -> list[dict[str, Any]]:
    """One question for each attack; the question and its reference attack too, the long ones only in answers."""
    return [
        {
            "id": f"{kind} {NAME}",
            "inputs": {f"question {NAME}": text[:2000]},
            "outputs": {"answer": text[:500]},
            "metadata": {f"field {NAME}": text[:100], "old": text, "new": f"{text} and {kind}"},
            "split": f"test {NAME}",
        }
        for kind, text in ATTACKS.items()
    ]


def hostile(outputs: dict[str, Any], example: Any) -> dict[str, Any]:
    """An evaluator whose comments attack; of one answer it raises an error that attacks."""
    text = str(outputs)
    if "svg" in text:
        raise ValueError(ATTACKS["script"] + NAME)
    return {"key": f"score {NAME}"[:60], "score": len(text) % 2, "comment": text[:3000]}


def labelled(outputs: dict[str, Any]) -> str:
    """An evaluator whose labels attack."""
    return ATTACKS["image"] if "script" in str(outputs) else NAME


def preferred(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    """A pairwise evaluator whose comments attack."""
    return {"winner": "A", "comment": ATTACKS["script"] + str(outputs)[:200]}


def spec() -> ExperimentSpec:
    return ExperimentSpec.model_validate(
        {
            "name": f"hostile {NAME}",
            "description": ATTACKS["image"],
            "tags": [NAME],
            "metadata": {NAME: ATTACKS["script"]},
            "dataset": {"name": f"data {NAME}", "rows": rows()},
            "targets": [
                {"kind": "recorded", "name": f"{column} {NAME}", "column": column} for column in ("old", "new")
            ],
            "baseline": f"old {NAME}",
            "evaluators": ["hostile_answers:hostile", "hostile_answers:labelled", "exact_match"],
            "gates": [{"name": f"gate {NAME}", "non_inferiority": {"exact_match": 0.1}}],
            "compare": {"evaluators": ["hostile_answers:preferred"], "both_orders": True},
        }
    )
