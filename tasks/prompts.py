"""Prompts of judges that stand in files."""

from typing import TypeVar

from specs.errors import InputError
from specs.evaluator import EvaluatorSpec, FallbackSpec
from specs.experiment import ExperimentSpec
from specs.paths import located
from tasks.resolve import is_ours

Judge = TypeVar("Judge", bound=FallbackSpec)

ENDINGS = (".md", ".txt")
"""What tells a file's name from a prompt."""


def with_prompts(spec: ExperimentSpec) -> ExperimentSpec:
    """The spec with the text of every prompt in place of its file's name: so it is part of the judge's version, and
    whoever goes on with the run asks the same. Raises InputError for a file that cannot be read."""
    judges = {name: [_both(judge) for judge in getattr(spec, name)] for name in ("evaluators", "summary_evaluators")}
    if spec.compare is None:
        return spec.model_copy(update=judges)
    pairwise = [with_prompt(judge) for judge in spec.compare.evaluators]
    return spec.model_copy(update={**judges, "compare": spec.compare.model_copy(update={"evaluators": pairwise})})


def _both(judge: EvaluatorSpec) -> EvaluatorSpec:
    """An evaluator, with its fallback and its tiers."""
    fallback = None if judge.fallback is None else with_prompt(judge.fallback)
    tiers = [with_prompt(tier) for tier in judge.tiers]
    return with_prompt(judge).model_copy(update={"fallback": fallback, "tiers": tiers})


def with_prompt(judge: Judge) -> Judge:
    """One judge in the same way."""
    prompt = judge.args.get("prompt")
    if not is_ours(judge) or not isinstance(prompt, str) or not prompt.endswith(ENDINGS) or "\n" in prompt:
        return judge
    try:
        text = located(prompt).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        says = getattr(error, "strerror", None) or error
        raise InputError(f"evaluator {judge.metric!r}: prompt {prompt!r}: cannot be read: {says}") from error
    return judge.model_copy(update={"args": {**judge.args, "prompt": text}})
