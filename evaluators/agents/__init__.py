"""Evaluators of agents: tools called, arguments, order and number of calls, and the final answer."""

from evalflows.evaluators.agents.agent import agent
from evalflows.evaluators.agents.final_answer import final_answer
from evalflows.evaluators.agents.outcomes import (
    actions_match,
    cost_per_solved,
    state_matches,
    tool_errors,
    turns_to_goal,
)
from evalflows.evaluators.agents.tools import step_efficiency, tool_arguments, tool_order, tool_selection
from evalflows.evaluators.agents.trajectory_judge import trajectory

__all__ = [
    "actions_match", "agent", "cost_per_solved", "final_answer", "state_matches", "step_efficiency", "tool_arguments",
    "tool_errors", "tool_order", "tool_selection", "trajectory", "turns_to_goal",
]  # fmt: skip
