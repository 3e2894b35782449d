"""Judgements of agents: which tools they called, with what, in which order, in how many steps; what they answered."""

from evaluators.agents.agent import agent
from evaluators.agents.final_answer import final_answer
from evaluators.agents.step_efficiency import step_efficiency
from evaluators.agents.tool_arguments import tool_arguments
from evaluators.agents.tool_order import tool_order
from evaluators.agents.tool_selection import tool_selection
from evaluators.agents.trajectory_judge import trajectory

__all__ = [
    "agent",
    "final_answer",
    "step_efficiency",
    "tool_arguments",
    "tool_order",
    "tool_selection",
    "trajectory",
]
