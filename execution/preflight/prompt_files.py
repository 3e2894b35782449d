"""Prompts of judges that are given as files."""

from typing import TypeVar

from evalflows.execution.resolve import is_ours
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.paths import located

Judge = TypeVar("Judge", bound=FallbackSpec)

PROMPT_SUFFIXES = (".md", ".txt")
"""Suffixes by which a prompt is taken as a file name."""


def with_prompts(spec: ExperimentSpec) -> ExperimentSpec:
    """Replace the file names of prompts by their texts, so that versions and resumptions include the text.

    Raise InputError for a file that cannot be read.
    """
    judges = {
        name: [with_all_prompts(judge) for judge in getattr(spec, name)]
        for name in ("evaluators", "summary_evaluators")
    }
    if spec.compare is None:
        return spec.model_copy(update=judges)
    pairwise = [with_prompt(judge) for judge in spec.compare.evaluators]
    return spec.model_copy(update={**judges, "compare": spec.compare.model_copy(update={"evaluators": pairwise})})


def with_all_prompts(judge: EvaluatorSpec) -> EvaluatorSpec:
    """Replace the prompt of an evaluator, its fallback and its tiers."""
    fallback = None if judge.fallback is None else with_prompt(judge.fallback)
    tiers = [with_prompt(tier) for tier in judge.tiers]
    return with_prompt(judge).model_copy(update={"fallback": fallback, "tiers": tiers})


def with_prompt(judge: Judge) -> Judge:
    """Replace the prompt of one evaluator."""
    prompt = judge.args.get("prompt")
    if not is_ours(judge) or not isinstance(prompt, str) or not prompt.endswith(PROMPT_SUFFIXES) or "\n" in prompt:
        return judge
    try:
        text = located(prompt).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"evaluator {judge.metric!r}: prompt {prompt!r}: cannot be read: {reason}") from error
    return judge.model_copy(update={"args": {**judge.args, "prompt": text}})
