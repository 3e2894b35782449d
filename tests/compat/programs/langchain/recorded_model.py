"""A chat model as LangChain has them, whose one answer was written down."""

from dataclasses import dataclass


@dataclass
class Message:
    content: str


@dataclass
class ChatModel:
    temperature: float

    def invoke(self, prompt: str) -> Message:
        assert "half past nine" in prompt and "end with a line" in prompt
        return Message("A misses the ferry by hours; B is on time, as the reference has it.\n[[B]]\n")
