"""Labels of answers against those of references."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from evalflows.evaluators.comments import listed
from evalflows.evaluators.declarations import Direction, checks_examples, declares, share
from evalflows.evaluators.figures import Figures, figures_by
from evalflows.evaluators.paths import as_text, path_roots, pick, reference_value, value_at
from evalflows.evaluators.score import Score
from evalflows.evaluators.views import ExampleView
from evalflows.specs.errors import short
from evalflows.specs.frozen import dataclass

if TYPE_CHECKING:
    from evalflows.stats.classification import ClassificationFigure
    from evalflows.stats.resampling import Statistic

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


Average = Literal["macro", "micro", "weighted"]

WHOLE = ("accuracy", "balanced_accuracy", "mcc", "kappa", "kappa_linear", "kappa_quadratic")
"""Measures of all labels together."""

ORDERED = ("kappa_linear", "kappa_quadratic")
"""Those that are weighted by the distance of two labels."""

OF_LABELS = ("precision", "recall", "f1")
"""Measures of one label, as `f1:spam`, or averaged over the labels, as `f1_macro`."""

USUAL = ("accuracy", "f1_macro", "mcc")

MOST_ALIKE = 5
"""Labels with several spellings that a note names."""

MOST_LABELS = 100
"""Labels at most: more of them are no labels, but texts."""


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    named = _named(settings.get("measures", USUAL), settings.get("prefix", ""))
    return {
        metric: {"higher_is_better": True, "range": [-1.0 if measure[:5] in ("mcc", "kappa") else 0.0, 1.0]}
        for metric, measure in named.items()
    }


def _named(measures: Any, prefix: Any) -> dict[str, str]:
    """Return the measure of each metric. Raise ValueError for a measure that does not exist."""
    chosen = [*measures] if isinstance(measures, list | tuple) else [measures]
    averaged = [f"{measure}_{average}" for measure in OF_LABELS for average in get_args(Average)]
    for measure in chosen:
        head, _, label = measure.partition(":") if isinstance(measure, str) else ("", "", "")
        if measure not in (*WHOLE, *averaged) and not (head in OF_LABELS and label):
            known = ", ".join((*WHOLE, *averaged, *(f"{each}:LABEL" for each in OF_LABELS)))
            raise ValueError(f"measures: got {short(measure)}, wanted some of {known}")
    if not chosen:
        raise ValueError("measures: got an empty list, wanted at least one")
    if not isinstance(prefix, str):
        raise ValueError(f"prefix: got {short(prefix)}, wanted a text")
    return {f"{prefix}{measure}": measure for measure in chosen}


def _check_references(examples: Iterable[ExampleView], settings: Mapping[str, Any]) -> str | None:
    """Return how many examples have no label, and which labels differ only in case or white space; None if all is well.

    Raise ValueError for a reference that is no label, and for a label in the settings that no reference has.
    """
    path, spellings, n, n_without = settings.get("expected"), dict[str, dict[str, str]](), 0, 0
    for example in examples:
        n += 1
        try:
            label = _expected(example.inputs, example.reference_outputs, example.metadata, path)
        except ValueError as error:
            raise ValueError(f"example {example.id!r}: {error}") from error
        n_without += label is None
        if label is not None:
            spellings.setdefault(label.strip().casefold(), {}).setdefault(label, example.id)
    where = path or "the reference"
    if n and not spellings:
        raise ValueError(f"expected: no example has a label at {where}")
    if len(spellings) > MOST_LABELS:
        raise ValueError(f"expected: got {len(spellings)} different labels at {where}, wanted at most {MOST_LABELS}")
    asked = [
        *_listed_labels(settings.get("labels")),
        *(label for each in _listed_measures(settings) if (label := each.partition(":")[2])),
    ]
    if not settings.get("labels") and (ordered := [each for each in _listed_measures(settings) if each in ORDERED]):
        raise ValueError(f"labels: got none with {ordered[0]}, wanted the labels in their order")
    if unknown := [label for label in asked if label.strip().casefold() not in spellings]:
        known = listed(sorted(spelling for each in spellings.values() for spelling in each))
        raise ValueError(f"labels: got {unknown[0]!r}, which no reference has, wanted some of {known}")
    without = [f"{n_without} of {n} examples have no label at {where} and are left out"] if n_without else []
    alike = [" and ".join(map(repr, each)) for each in spellings.values() if len(each) > 1]
    if not alike:
        return "".join(without) or None
    folds = settings.get("ignore_case", True) and settings.get("strip", True)
    counted = "are one label" if folds else "are different labels unless ignore_case and strip are true"
    said = f"references that differ only in case or white space {counted}: {'; '.join(alike[:MOST_ALIKE])}"
    return "; ".join([*without, said])


def _classified(
    inputs: Sequence[dict[str, Any]],
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: Sequence[dict[str, Any] | None],
    *,
    expected: str | None = None,
    got: str | None = None,
    measures: Sequence[str] = USUAL,
    labels: Sequence[str] | None = None,
    ignore_case: bool = True,
    strip: bool = True,
    prefix: str = "",
) -> Figures | None:
    """Return the figures of `classification`, with the same arguments."""
    import numpy as np

    from evalflows.stats.classification import NONE

    named, fold = _named(measures, prefix), partial(_label, ignore_case=ignore_case, strip=strip)
    rows = zip(inputs, outputs, reference_outputs, strict=True)
    pairs = [_pair(row, expected, got, fold) for row in rows]
    answered = [output for output in outputs if output is not None]
    if got and answered and not any(pair and pair[1] for pair in pairs):
        value_at("got", got, path_roots({}, answered[0], None, None))  # raises, since no answer has the field
    is_missing = np.array([output is None for output in outputs], dtype=bool)
    known = [fold(label) or "" for label in _listed_labels(labels)]
    known += sorted({pair[0] for pair in pairs if pair is not None} - {*known})
    if not any(pair is not None and not missing for pair, missing in zip(pairs, is_missing, strict=True)):
        return None
    code = {label: number for number, label in enumerate(known)}
    places = np.array([at for at, pair in enumerate(pairs) if pair is not None], dtype=np.intp)
    wanted = np.array([code[pair[0]] for pair in pairs if pair is not None], dtype=np.intp)
    given = np.array([code.get(pair[1] or "", NONE) for pair in pairs if pair is not None], dtype=np.intp)
    figures = [_figure(measure, code, fold) for measure in named.values()]
    table = _Compared(places, wanted, given, is_missing[places], len(known), figures)
    return Figures(
        metrics=[*named],
        n_runs=len(pairs),
        statistic=table.known(),
        lowest=table.lowest(),
        highest=table.highest(),
        n_missing=int(table.is_missing.sum()),
        labels=[None if missing else pair for pair, missing in zip(pairs, is_missing, strict=True)],
    )


@declares(_metrics)
@checks_examples(_check_references)
@figures_by(_classified)
def classification(
    inputs: Sequence[dict[str, Any]],
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: Sequence[dict[str, Any] | None],
    *,
    expected: str | None = None,
    got: str | None = None,
    measures: Sequence[str] = USUAL,
    labels: Sequence[str] | None = None,
    ignore_case: bool = True,
    strip: bool = True,
    prefix: str = "",
) -> list[Score] | None:
    """How well labels agree with those of the references, over all runs, with a metric per measure and an interval for
    each; the labels form a confusion matrix.

    `expected` and `got` are paths to the label, such as `reference_outputs.intent` and `outputs.intent`, by default the
    only field. `measures`: accuracy, balanced_accuracy (the mean recall), mcc (Matthews' correlation, of several labels
    by Gorodkin 2004), kappa (Cohen's; kappa_linear and kappa_quadratic are weighted by the distance in the order of
    `labels`), and precision, recall and f1 as `f1_macro`, `f1_micro`, `f1_weighted`, or of one label as `f1:spam`. They
    are those of scikit-learn. An answer that is none of the labels is wrong, and no false positive of any. `labels` is
    the order of the labels, by default the alphabet's. `prefix` stands before the names of all metrics.

    A failed run is missing: it counts neither as right nor as wrong, and at both extremes in what a gate tests. Runs
    without a reference are left out; None if no run has one. It cannot see a label inside a sentence (the answer must
    be the label), nor several labels of one run.
    """
    if isinstance(outputs, dict):
        raise TypeError("got the outputs of one run, wanted those of all runs: list it under summary_evaluators")
    figures = _classified(
        inputs,
        outputs,
        reference_outputs,
        expected=expected,
        got=got,
        measures=measures,
        labels=labels,
        ignore_case=ignore_case,
        strip=strip,
        prefix=prefix,
    )
    return None if figures is None else figures.scores(_UNDEFINED)


_UNDEFINED = "not defined: a label that is counted was neither expected nor answered, or all labels are the same"


@dataclass(frozen=True, slots=True)
class _Compared:
    """Labels of the runs that have a reference, by their codes; arrays of shape (k,) for k of the runs."""

    places: Any  # of these runs among all
    wanted: Any
    given: Any
    is_missing: Any
    n_labels: int
    figures: "Sequence[ClassificationFigure]"

    def known(self) -> "Statistic":
        """Return the figures of the runs with an answer."""
        return self._of(self.given, ~self.is_missing)

    def with_missing_wrong(self) -> "Statistic":
        """Return the figures with each missing answer as none of the labels."""
        return self._of(self.given)

    def highest(self) -> "Statistic":
        """Return the figures with each missing answer right."""
        import numpy as np

        return self._of(np.where(self.is_missing, self.wanted, self.given))

    def lowest(self) -> "Statistic":
        """Return the lowest of the figures with each missing answer wrong, and all of them the same label or none."""
        import numpy as np

        from evalflows.stats.classification import NONE

        wrong = [np.where(self.wanted == label, NONE, label) for label in (NONE, *range(self.n_labels))]
        cases = [self._of(np.where(self.is_missing, answer, self.given)) for answer in wrong]
        return lambda weights: np.fmin.reduce([case(weights) for case in cases])

    def _of(self, given: Any, chosen: Any = ...) -> "Statistic":
        from evalflows.stats.classification import Classification

        places = self.places[chosen]
        figures = Classification(self.wanted[chosen], given[chosen], self.n_labels, self.figures)
        return lambda weights: figures(weights[:, places])


def _figure(measure: str, code: Mapping[str, int], fold: Callable[[Any], str | None]) -> "ClassificationFigure":
    from evalflows.stats.classification import ClassificationFigure

    name, _, label = measure.partition(":")
    if label:
        return ClassificationFigure(name, code.get(fold(label) or "", 0))  # type: ignore[arg-type]
    if measure in ("accuracy", "balanced_accuracy", "mcc", "kappa"):
        return ClassificationFigure(measure)  # type: ignore[arg-type]
    name, _, of = measure.rpartition("_")
    return ClassificationFigure(name, of)  # type: ignore[arg-type]


def _pair(
    row: tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any] | None],
    expected: str | None,
    got: str | None,
    fold: Callable[[Any], str | None],
) -> tuple[str, str | None] | None:
    """Return the label of a reference and of its answer; None without a reference."""
    inputs, output, reference = row
    wanted = fold(_expected(inputs, reference, None, expected))
    if wanted is None:
        return None
    if output is None:
        return wanted, None
    if got is None:
        value = pick(output, None)
        if isinstance(value, dict | list):
            raise ValueError(f"got: outputs of {', '.join(output)}, wanted a path to the label, such as outputs.label")
        return wanted, fold(value)
    try:
        return wanted, fold(value_at("got", got, path_roots(inputs, output, reference, None)))
    except ValueError:  # the answer lacks the field: it has no label
        return wanted, None


def _expected(
    inputs: dict[str, Any], reference: dict[str, Any] | None, metadata: dict[str, Any] | None, path: str | None
) -> str | None:
    """Return the label of a reference as it is written; None if there is none. Raise ValueError for anything else."""
    if path is None:
        value = reference_value(reference, None)
    else:
        value = value_at("expected", path, path_roots(inputs, {}, reference, metadata))
    if value is None or value == {}:
        return None
    if isinstance(value, dict | list):
        got = f"a {type(value).__name__}" if path else f"the fields {', '.join(value)}"
        raise ValueError(f"expected: got {got}, wanted one label, or a path to it, such as reference_outputs.label")
    return as_text(value)


def _listed_labels(labels: Any) -> list[str]:
    return [as_text(label) for label in (labels if isinstance(labels, list | tuple) else [labels])] if labels else []


def _listed_measures(settings: Mapping[str, Any]) -> list[str]:
    measures = settings.get("measures", USUAL)
    return [*map(str, measures)] if isinstance(measures, list | tuple) else [str(measures)]


def _f1_figures(
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: Sequence[dict[str, Any] | None],
    *,
    key: str | None = None,
    average: Literal["macro", "micro"] = "macro",
    labels: Sequence[str] | None = None,
    ignore_case: bool = True,
    strip: bool = True,
) -> Figures | None:
    """Return the figure of `label_f1`, with the same arguments; None if only some labels count."""
    import numpy as np

    from evalflows.stats.classification import NONE, ClassificationFigure

    if labels is not None:
        return None
    fold = partial(_label, ignore_case=ignore_case, strip=strip)
    rows = zip(map(fold, _answers(outputs, key)), map(fold, _references(reference_outputs, key)), strict=True)
    pairs = [(wanted, answer) if wanted else None for answer, wanted in rows]
    code = {label: number for number, label in enumerate(sorted({pair[0] for pair in pairs if pair}))}
    if not code:
        return None
    places = np.array([at for at, pair in enumerate(pairs) if pair], dtype=np.intp)
    wanted = np.array([code[pair[0]] for pair in pairs if pair], dtype=np.intp)
    given = np.array([code.get(pair[1] or "", NONE) for pair in pairs if pair], dtype=np.intp)
    is_missing = np.array([outputs[at] is None for at in places], dtype=bool)
    table = _Compared(places, wanted, given, is_missing, len(code), [ClassificationFigure("f1", average)])
    return Figures(
        metrics=[""],
        n_runs=len(pairs),
        statistic=table.with_missing_wrong(),
        lowest=table.with_missing_wrong(),
        highest=table.highest(),
        n_missing=int(is_missing.sum()),
        labels=pairs,
    )


figures_by(_f1_figures)(label_f1)  # not above it: the source of an evaluator is its version
