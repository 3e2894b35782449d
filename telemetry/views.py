"""What mappers, filters and evaluators get of production: observations, traces and sessions.

The names are those of OpenTelemetry and Langfuse; Langfuse's other spellings work too. What was not captured is None:
an instrumentation that leaves content out gives no input, not an empty one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from evalflows.specs.protocols import Message


@dataclass(slots=True, kw_only=True)
class ToolCall:
    """A tool call of a model or an agent, as an object and as a mapping: `call.name` and `call["name"]`."""

    name: str
    arguments: Any = None  # parsed, if it is JSON text
    id: str | None = None
    result: Any = None  # None if it was not captured
    error: str | None = None

    def __getitem__(self, name: str) -> Any:
        if name not in self.__slots__:
            raise KeyError(f"{name!r}: wanted one of {', '.join(self.__slots__)}")
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name) if name in self.__slots__ else default

    def keys(self) -> Iterator[str]:
        return iter(self.__slots__)


@dataclass(slots=True, kw_only=True)
class ObservationView:
    """One observation: a model call, a tool call, a step of an agent, or any other span."""

    id: str
    trace_id: str
    parent_id: str | None = None
    type: str = "span"  # generation, tool, agent, chain, retriever, embedding, evaluator, guardrail, event or span
    name: str
    started_at: datetime
    ended_at: datetime | None = None
    latency_s: float | None = None  # None if it did not end, or ended before it began
    status: str = "unset"
    status_message: str | None = None
    input: Any = None  # parsed, if it is JSON text; of a model call {"messages": […]}
    output: Any = None  # parsed, if it is JSON text; of a model call {"messages": […]}
    messages: list[Message] | None = None  # of a model call, in OpenAI's form: the request and the answer
    tool_calls: list[ToolCall] = field(default_factory=list)  # those that a model asked for, or of a tool the one call
    model: str | None = None
    provider: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    session_id: str | None = None
    user_id: str | None = None
    tags: list[str] = field(default_factory=list)
    version: str | None = None
    environment: str | None = None
    service: str | None = None
    trace_name: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)  # all attributes, as they came

    @property
    def parent_observation_id(self) -> str | None:
        return self.parent_id

    @property
    def start_time(self) -> datetime:
        return self.started_at

    @property
    def end_time(self) -> datetime | None:
        return self.ended_at

    @property
    def level(self) -> str:
        return "ERROR" if self.status == "error" else "DEFAULT"

    @property
    def latency(self) -> float | None:
        return self.latency_s


@dataclass(slots=True, kw_only=True)
class TraceView:
    """One trace, with its observations in order of time. Its fields are those of the view `traces`."""

    id: str
    name: str
    started_at: datetime
    ended_at: datetime | None = None
    latency_s: float | None = None
    status: str = "ok"
    input: Any = None
    output: Any = None
    session_id: str | None = None
    user_id: str | None = None
    tags: list[str] = field(default_factory=list)
    version: str | None = None
    environment: str | None = None
    service: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)  # of the root observation
    observations: list[ObservationView] = field(default_factory=list)

    @property
    def timestamp(self) -> datetime:
        return self.started_at

    @property
    def latency(self) -> float | None:
        return self.latency_s

    @property
    def release(self) -> str | None:
        return self.version

    def of_type(self, kind: str) -> list[ObservationView]:
        """Return all observations of a type, in order of time; an empty list if there are none."""
        return [observation for observation in self.observations if observation.type == kind]

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls of the trace, in order: what models asked for, and what tools ran.

        A call that was asked for and run is one, with its arguments and its result.
        """
        calls = {id(call): call for observation in self.observations for call in observation.tool_calls}
        return list(calls.values())

    @property
    def messages(self) -> list[Message] | None:
        """The longest conversation with a model, in OpenAI's form; None if no content was captured."""
        return longest([observation.messages for observation in self.observations if observation.messages])


@dataclass(slots=True, kw_only=True)
class SessionView:
    """One session: its traces in order of time."""

    id: str
    started_at: datetime
    ended_at: datetime | None = None
    user_id: str | None = None
    tags: list[str] = field(default_factory=list)
    version: str | None = None
    environment: str | None = None
    traces: list[TraceView] = field(default_factory=list)

    @property
    def session_id(self) -> str:
        return self.id

    @property
    def input(self) -> Any:
        return self.traces[0].input if self.traces else None

    @property
    def output(self) -> Any:
        return self.traces[-1].output if self.traces else None

    @property
    def metadata(self) -> dict[str, Any]:
        return self.traces[-1].metadata if self.traces else {}


def longest(conversations: Sequence[list[Message]]) -> list[Message] | None:
    """Return the conversation with the most messages, the first of several; None if there is none."""
    return max(conversations, key=len, default=None)
