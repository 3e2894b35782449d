"""The overlap of an answer's words and characters with references: ROUGE by rouge-score; BLEU, chrF and TER by
sacrebleu."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

from evalflows.evaluators.declarations import (
    Direction,
    checks_examples,
    declares,
    needs_packages,
    needs_reference,
    zero_to_one,
)
from evalflows.evaluators.figures import Figures, figures_by
from evalflows.evaluators.paths import answer_text, reference_value
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import checked_choice
from evalflows.evaluators.views import ExampleView
from evalflows.specs.errors import CallError, short

if TYPE_CHECKING:
    from evalflows.stats.resampling import Statistic

Tokenize = Literal["13a", "intl", "zh", "char", "none"]
"""Sacrebleu's tokenizers that need no other package."""

KINDS = ("1", "2", "L", "Lsum")

MOST_ROUGE, MOST_TER = 4_000_000, 40_000
"""Words of the answer times words of the references: in the worst case about ten seconds of work."""


def references_of(reference_outputs: dict[str, Any] | None, key: str | None) -> list[str]:
    """Return the reference texts, without blank ones. Raise ValueError if there is anything else."""
    value = reference_value(reference_outputs, key)
    listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
    if odd := [text for text in listed if text is not None and not isinstance(text, str)]:
        raise ValueError(f"reference: got {short(odd[0])}, wanted a text or a list of texts; `key` names the field")
    return [text for text in listed if text and text.strip()]


def _check_examples(examples: Iterable[ExampleView], settings: Mapping[str, Any]) -> None:
    for example in examples:
        try:
            references_of(example.reference_outputs, settings.get("key"))
        except (ValueError, KeyError) as error:
            raise ValueError(f"example {example.id!r}: {error.args[0]}") from error


def _percent(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    return {name: {"higher_is_better": True, "range": [0.0, 100.0]}}


def _errors(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    return {name: {"higher_is_better": False}}  # without a range: a long answer has any number of errors


def _rouges(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    return {metric: zero_to_one() for metric in _rouge_metrics(settings.get("kinds", KINDS))}


def _rouge_metrics(kinds: Any) -> list[str]:
    chosen = [str(kind) for kind in (kinds if isinstance(kinds, list | tuple) else [kinds])]
    if not chosen or not {*chosen} <= {*KINDS}:
        raise ValueError(f"kinds: got {short(kinds)}, wanted any of {', '.join(KINDS)}")
    return [f"rouge{kind}" for kind in chosen]


@declares(_rouges)
@needs_reference
@needs_packages("text", "rouge-score")
@checks_examples(_check_examples)
def rouge(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    kinds: Sequence[str | int] = KINDS,
    stemmer: bool = False,
    key: str | None = None,
) -> list[Score] | None:
    """The overlap with the reference in words (`rouge1`), pairs of words (`rouge2`) and the longest common subsequence
    (`rougeL`, and `rougeLsum` by lines): F1, 0 to 1, by rouge-score; the metadata has precision and recall.

    With several references the one with the highest F1 counts, for each kind. `stemmer` is Porter's, for English. None
    without a reference. Raise ValueError for a reference that is no text, and for one without a word that rouge-score
    reads: it knows a to z and 0 to 9 only. It cannot see meaning: a negation costs one word, a paraphrase all of them.
    """
    metrics = _rouge_metrics(kinds)
    references, answer = references_of(reference_outputs, key), answer_text(outputs, key)
    if not references:
        return None
    if unread := [text for text in references if not any(char.isascii() and char.isalnum() for char in text)]:
        wanted = "which is all that ROUGE reads; chrf reads any script"
        raise ValueError(f"reference: got {short(unread[0])}, wanted letters from a to z or digits, {wanted}")
    _check_length(answer, references, MOST_ROUGE)
    signature = f"{'stem' if stemmer else 'no stem'}|nrefs:{len(references)}|version:{version('rouge-score')}"
    found = _rouge_scorer(tuple(metrics), stemmer).score_multi(references, answer)
    return [
        Score(
            key=metric,
            value=float(found[metric].fmeasure),
            metadata={
                "precision": float(found[metric].precision),
                "recall": float(found[metric].recall),
                "signature": f"{metric}|{signature}",
            },
        )
        for metric in metrics
    ]


@cache
def _rouge_scorer(metrics: tuple[str, ...], stemmer: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # late: an extra, which loads nltk

    return RougeScorer([*metrics], use_stemmer=stemmer)


@declares(_percent)
@needs_reference
@needs_packages("text", "sacrebleu")
@checks_examples(_check_examples)
def bleu(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
    key: str | None = None,
) -> Score | None:
    """BLEU of one answer, 0 to 100, by sacrebleu, with effective order and exponential smoothing, as for sentences.

    A list of references is several references. `tokenize` "zh" or "char" is for scripts without spaces. None without a
    reference. The mean over answers is not the BLEU of the corpus: that is `corpus_bleu`. It cannot see meaning, and
    says little about a single short answer.
    """
    from sacrebleu.metrics.bleu import BLEU  # late: an extra

    checked_choice("tokenize", tokenize, Tokenize)
    return _scored(BLEU(effective_order=True, tokenize=tokenize, lowercase=lowercase), outputs, reference_outputs, key)


@declares(_percent)
@needs_reference
@needs_packages("text", "sacrebleu")
@checks_examples(_check_examples)
def chrf(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    word_order: int = 0,
    lowercase: bool = False,
    key: str | None = None,
) -> Score | None:
    """chrF2 of one answer, 0 to 100, by sacrebleu: the F-score of its character n-grams, in any script.

    With `word_order` 2 it is chrF2++, which counts words and pairs of words too. Of several references, the best
    counts. None without a reference. It cannot see meaning: "not guilty" is close to "guilty".
    """
    from sacrebleu.metrics.chrf import CHRF  # late: an extra

    if not isinstance(word_order, int) or isinstance(word_order, bool) or not 0 <= word_order <= 9:
        raise ValueError(f"word_order: got {short(word_order)}, wanted a whole number from 0 to 9")
    return _scored(CHRF(word_order=word_order, lowercase=lowercase), outputs, reference_outputs, key)


@declares(_errors)
@needs_reference
@needs_packages("text", "sacrebleu")
@checks_examples(_check_examples)
def ter(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    normalized: bool = False,
    no_punct: bool = False,
    case_sensitive: bool = False,
    key: str | None = None,
) -> Score | None:
    """The translation edit rate of one answer, by sacrebleu: edits and shifts per 100 words of the reference; less is
    better, and more than 100 is possible.

    Of several references, the nearest counts, by their mean length. `normalized` splits off punctuation, `no_punct`
    removes it. None without a reference. Texts of more than some 200 words fail as `too_slow`. It cannot see meaning,
    nor words in scripts without spaces.
    """
    from sacrebleu.metrics.ter import TER  # late: an extra

    metric = TER(normalized=normalized, no_punct=no_punct, case_sensitive=case_sensitive)
    return _scored(metric, outputs, reference_outputs, key, most=MOST_TER)


def _corpus_figures(
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: Sequence[dict[str, Any] | None],
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
    key: str | None = None,
) -> Figures | None:
    """Return the figure of `corpus_bleu`, with the same arguments: the score of the summed counts of the answers."""
    import numpy as np
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    texts = [references_of(reference, key) for reference in reference_outputs]
    if not any(texts):
        return None

    def counts(answer: str, references: Sequence[str]) -> list[int]:
        if not references:
            return [0] * 10
        found = metric.corpus_score([answer], [[reference] for reference in references])
        return [*found.counts, *found.totals, found.sys_len, found.ref_len]

    def score(sums: Sequence[float]) -> float:
        *numbers, n_answered, n_wanted = (round(number) for number in sums)
        found = BLEU.compute_bleu(numbers[:4], numbers[4:], n_answered, n_wanted, smooth_method="exp")
        return min(100.0, float(found.score)) if n_wanted else math.nan

    def statistic(answers: Sequence[str]) -> "Statistic":
        table = np.array([*map(counts, answers, texts)], dtype=np.float64)
        return lambda weights: np.array([[score(sums)] for sums in (weights @ table).tolist()])

    known = ["" if output is None else answer_text(output, key) for output in outputs]
    n_missing = sum(output is None and bool(of_it) for output, of_it in zip(outputs, texts, strict=True))
    best = [
        of_it[0] if output is None and of_it else answer
        for output, of_it, answer in zip(outputs, texts, known, strict=True)
    ]
    of_known = statistic(known)
    return Figures(
        metrics=[""],
        n_runs=len(known),
        statistic=of_known,
        lowest=of_known,
        highest=statistic(best) if n_missing else of_known,
        n_missing=n_missing,
    )


@declares(_percent)
@needs_reference
@needs_packages("text", "sacrebleu")
@checks_examples(_check_examples)
@figures_by(_corpus_figures)
def corpus_bleu(
    outputs: Sequence[dict[str, Any] | None],
    reference_outputs: Sequence[dict[str, Any] | None],
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
    key: str | None = None,
) -> Score | None:
    """BLEU over all runs of an experiment, 0 to 100, by sacrebleu; the comment has its parts.

    A failed run is an empty answer. Runs without a reference are left out; None if no run has one. Settings as of
    `bleu`. It cannot see meaning.
    """
    from sacrebleu.metrics.bleu import BLEU  # late: an extra

    checked_choice("tokenize", tokenize, Tokenize)
    if isinstance(outputs, dict):
        raise TypeError("got the outputs of one run, wanted those of all runs: list it under summary_evaluators")
    references = [references_of(reference, key) for reference in reference_outputs]
    kept = [
        ("" if output is None else answer_text(output, key), texts)
        for output, texts in zip(outputs, references, strict=True)
        if texts
    ]
    if not kept:
        return None
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    found = metric.corpus_score([answer for answer, _ in kept], [*zip_longest(*(texts for _, texts in kept))])
    return Score(
        value=min(100.0, float(found.score)), comment=str(found), metadata={"signature": str(metric.get_signature())}
    )


def _scored(
    metric: Any, outputs: dict[str, Any], reference_outputs: dict[str, Any] | None, key: str | None, most: int = 0
) -> Score | None:
    """Return sacrebleu's score of one answer with its signature, which names the settings and the version.

    TER has a limit and no bound; the others are at most 100, where sacrebleu has 100.00000000000004 for equal texts.
    """
    references = references_of(reference_outputs, key)
    if not references:
        return None
    answer = answer_text(outputs, key)
    if most:
        _check_length(answer, references, most)
    value = float(metric.sentence_score(answer, references).score)
    return Score(value=value if most else min(100.0, value), metadata={"signature": str(metric.get_signature())})


def _check_length(answer: str, references: Sequence[str], most: int) -> None:
    words, wanted = len(answer.split()), sum(len(text.split()) for text in references)
    if words * wanted > most:
        raise CallError("too_slow", f"texts of {words} and {wanted} words are too long to compare")
