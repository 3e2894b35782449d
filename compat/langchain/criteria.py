"""Criteria for comparing two texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evalflows.compat.langchain.principles import refuse_principles
from evalflows.evaluators.judges import CRITERIA
from evalflows.specs.errors import short


class Criteria(StrEnum):
    """The criteria defined in `evaluators.judges.CRITERIA`."""

    CONCISENESS = "conciseness"
    RELEVANCE = "relevance"
    CORRECTNESS = "correctness"
    COHERENCE = "coherence"
    HARMFULNESS = "harmfulness"
    MALICIOUSNESS = "maliciousness"
    HELPFULNESS = "helpfulness"
    CONTROVERSIALITY = "controversiality"
    MISOGYNY = "misogyny"
    CRIMINALITY = "criminality"
    INSENSITIVITY = "insensitivity"
    DEPTH = "depth"
    CREATIVITY = "creativity"
    DETAIL = "detail"


DEFAULT = (Criteria.HELPFULNESS, Criteria.RELEVANCE, Criteria.CORRECTNESS, Criteria.DEPTH)


@dataclass(frozen=True, kw_only=True)
class ConstitutionalPrinciple:
    """LangChain's principle to criticise by. `revision_request` has no effect in a comparison."""

    critique_request: str
    revision_request: str = ""
    name: str = "Constitutional Principle"


def resolve_pairwise_criteria(criteria: Any = None) -> dict[str, str]:
    """Return {name: description} for a member of Criteria, a name, a mapping, a principle, or a list of these.

    An unknown name has an empty description. Raises ValueError for anything else, and for empty criteria; InputError
    for a principle of LangChain's by its name.
    """
    refuse_principles(criteria)
    if criteria is None:
        return resolve_pairwise_criteria(DEFAULT)
    if isinstance(criteria, str) and criteria.strip():
        return {str(criteria): CRITERIA.get(criteria, "")}
    if hasattr(criteria, "critique_request"):
        return {str(criteria.name): str(criteria.critique_request)}
    if isinstance(criteria, list | tuple) and criteria:
        return {name: text for criterion in criteria for name, text in resolve_pairwise_criteria(criterion).items()}
    if isinstance(criteria, Mapping) and criteria and all(isinstance(text, str) for text in criteria.values()):
        return {str(name): text for name, text in criteria.items()}
    raise ValueError(
        f"criteria: got {short(criteria)}, wanted a name, a mapping from names to texts, or a list of them"
    )


def lines(criteria: Mapping[str, str]) -> str:
    """Format the criteria for a prompt, one per line."""
    return "\n".join(f"- {name}: {text}" if text else f"- {name}" for name, text in criteria.items())
