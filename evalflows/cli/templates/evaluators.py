"""Your evaluators: functions that judge one answer. Their parameters say what they get.

Try one: evalflows evaluators evals.evaluators:brief --try '{"inputs": "Hi?", "outputs": "Hello."}'
"""

from typing import Any


def brief(outputs: dict[str, Any]) -> bool:
    """Whether the answer has at most 20 words. May also ask for `inputs`, `reference_outputs` and `metadata`."""
    return len(outputs["output"].split()) <= 20
