"""Labels of answers against those of references."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from evalflows.evaluators.declarations import declares, share
from evalflows.evaluators.paths import as_text, pick, reference_value
from evalflows.evaluators.score import Score

_MOST_SHOWN = 20


@declares(share)
def label_f1(
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: Sequence[dict[str, Any] | None],
    *,
    key: str | None = None,
    average: Literal["macro", "micro"] = "macro",
    labels: Sequence[str] | None = None,
    ignore_case: bool = True,
    strip: bool = True,
) -> Score | None:
    """F1 of a classification over all runs of an experiment, 0 to 1; the comment has the F1 of each label.

    `macro` is the mean over labels, `micro` pools all counts. `labels` are the labels that count, by default those of
    the references: an answer that is not a label is wrong but does not add a label. A failed run counts as a wrong
    answer. Runs without a reference are left out; None if no run has one. It cannot see a label inside a sentence (the
    answer must be the label), several labels per run, or their order.
    """
    _check(outputs, average, labels)
    fold = partial(_label, ignore_case=ignore_case, strip=strip)
    pairs = zip(map(fold, _answers(outputs, key)), map(fold, _references(reference_outputs, key)), strict=True)
    tally = _Tally([pair for pair in pairs if pair[1]])
    if not tally.runs:
        return None
    listed = labels if isinstance(labels, list | tuple) or labels is None else [labels]
    counted, absent = tally.choose([*tally.wanted] if listed is None else [fold(label) or "" for label in listed])
    value = tally.f1(counted) if average == "micro" else sum(tally.f1([label]) for label in counted) / len(counted)
    return Score(value=value, comment=tally.describe(counted, absent))


def _check(outputs: object, average: str, labels: Sequence[str] | None) -> None:
    if isinstance(outputs, dict):
        raise TypeError("got the outputs of one run, wanted those of all runs: list it under summary_evaluators")
    if average not in ("macro", "micro"):
        raise ValueError(f"average: got {average!r}, wanted macro or micro")
    if labels is not None and not labels:
        raise ValueError("labels: got an empty list, wanted at least one label")


class _Tally:
    """Counts of each label: expected, answered, and both."""

    def __init__(self, pairs: list[tuple[str | None, str | None]]) -> None:
        self.runs, self.missing = len(pairs), sum(answer is None for answer, _ in pairs)
        self.wanted = Counter(wanted for _, wanted in pairs if wanted is not None)
        self.answered = Counter(answer for answer, _ in pairs if answer is not None)
        self.right = Counter(wanted for answer, wanted in pairs if wanted is not None and answer == wanted)

    def choose(self, labels: list[str]) -> tuple[list[str], list[str]]:
        """Return the labels that were expected or answered, and those that never were and so have no F1."""
        seen = {label for label in labels if self.wanted[label] or self.answered[label]}
        if not seen:
            raise ValueError(f"labels: got {', '.join(labels)}, wanted some of {', '.join(sorted(self.wanted))}")
        return sorted(seen), sorted({*labels} - seen)

    def f1(self, labels: list[str]) -> float:
        right, wanted, answered = (
            sum(count[label] for label in labels) for count in (self.right, self.wanted, self.answered)
        )
        return 2 * right / (wanted + answered)

    def describe(self, labels: list[str], absent: list[str]) -> str:
        frequent = sorted(labels, key=lambda label: -self.wanted[label])
        parts = [self._describe(label) for label in frequent[:_MOST_SHOWN]]
        more = [f"{len(labels) - _MOST_SHOWN} more labels"] if len(labels) > _MOST_SHOWN else []
        left_out = [f"never seen, left out: {', '.join(absent)}"] if absent else []
        return "; ".join([f"{self.runs} runs, {self.missing} without an answer", *parts, *more, *left_out])

    def _describe(self, label: str) -> str:
        right, wanted, answered = self.right[label], self.wanted[label], self.answered[label]
        precision = f"{right / answered:.2f}" if answered else "none"
        recall = f"{right / wanted:.2f}" if wanted else "none"
        return f"{label}: precision {precision}, recall {recall}, F1 {self.f1([label]):.2f}, wanted {wanted}"


def _references(references: Sequence[dict[str, Any] | None], key: str | None) -> list[Any]:
    values = [reference_value(reference, key) for reference in references]
    for value in values:
        if isinstance(value, dict | list):
            raise ValueError(f"reference: got a {type(value).__name__}, wanted one label; `key` names the field")
    return values


def _answers(outputs: Sequence[dict[str, Any] | None], key: str | None) -> list[Any]:
    """Return the field of each output; None for a failed run, or if it lacks a field that others have."""
    present = [output for output in outputs if output is not None]
    for output in present:
        if key is None and len(output) > 1:
            raise ValueError(f"outputs: got the fields {', '.join(output)}, wanted `key` to name the label's field")
    if present and not any(key is None or key in output for output in present):
        raise KeyError(f"no output has a field {key!r}")
    return [None if output is None or (key and key not in output) else pick(output, key) for output in outputs]


def _label(value: Any, ignore_case: bool, strip: bool) -> str | None:
    """Return a label in the form in which it is compared; None if there is no label."""
    if value is None or value == {}:
        return None
    text = as_text(value)
    text = text.strip() if strip else text
    return (text.casefold() if ignore_case else text) or None
