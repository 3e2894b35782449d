"""The names that instrumentations give to the same thing: a versioned table, applied whenever traces are read.

The store keeps attributes as they came, since GenAI conventions still change their names. The views of SQL
(evalflows/store/views.py) and the objects that mappers and evaluators get (telemetry/) use this table, so a new name
needs a line here, and traces that were stored before have it too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

VERSION = 3
"""Raised when a name is added or moved."""

NOT_CAPTURED = "__REDACTED__"
"""What OpenInference writes for content that it was told to leave out."""

Source = Literal["otlp", "langfuse", "langsmith", "rows"]


@dataclass(frozen=True, slots=True)
class Within:
    """A field within the JSON text or object that is an attribute's value."""

    attribute: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OfResource:
    """An attribute of the process that sent the observation."""

    attribute: str


Alias = str | Within | OfResource
"""An attribute's name, or where else a value lies."""

FIELDS: Mapping[str, Mapping[Source, tuple[Alias, ...]]] = {
    "trace_name": {
        "otlp": ("langfuse.trace.name", "langsmith.trace.name"),
        "langfuse": ("trace_name", "traceName"),
        "langsmith": (),
        "rows": (),
    },
    "type": {
        "otlp": (
            "langfuse.observation.type",
            "openinference.span.kind",
            "gen_ai.operation.name",
            "traceloop.span.kind",
            "llm.request.type",
            "langsmith.span.kind",
        ),
        "langfuse": ("type",),
        "langsmith": ("run_type",),
        "rows": ("type",),
    },
    "input": {
        "otlp": (
            "gen_ai.input.messages",
            "input.value",
            "langfuse.observation.input",
            "langfuse.trace.input",
            "traceloop.entity.input",
            "gen_ai.tool.call.arguments",
            "tool_arguments",
            "gen_ai.prompt",
        ),
        "langfuse": ("input",),
        "langsmith": ("inputs",),
        "rows": ("input",),
    },
    "output": {
        "otlp": (
            "gen_ai.output.messages",
            "output.value",
            "langfuse.observation.output",
            "langfuse.trace.output",
            "traceloop.entity.output",
            "final_result",
            "gen_ai.tool.call.result",
            "tool_response",
            "gen_ai.completion",
        ),
        "langfuse": ("output",),
        "langsmith": ("outputs",),
        "rows": ("output",),
    },
    "model": {
        "otlp": (
            "gen_ai.response.model",
            "gen_ai.request.model",
            "llm.model_name",
            "embedding.model_name",
            "langfuse.observation.model.name",
        ),
        "langfuse": ("model", "providedModelName", "provided_model_name"),
        "langsmith": (
            Within("extra", ("metadata", "ls_model_name")),
            Within("outputs", ("model",)),
            Within("extra", ("invocation_params", "model")),
        ),
        "rows": ("model",),
    },
    "provider": {
        "otlp": (
            "langsmith.metadata.ls_provider",
            "gen_ai.provider.name",
            "gen_ai.system",
            "llm.provider",
            "llm.system",
        ),
        "langfuse": (),
        "langsmith": (Within("extra", ("metadata", "ls_provider")),),
        "rows": ("provider",),
    },
    "tokens_in": {
        "otlp": (
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.prompt_tokens",
            "llm.token_count.prompt",
            Within("langfuse.observation.usage_details", ("input",)),
            Within("langfuse.observation.usage_details", ("prompt_tokens",)),
            Within("langsmith.metadata.usage_metadata", ("input_tokens",)),
        ),
        "langfuse": (
            Within("usageDetails", ("input",)),
            Within("usage_details", ("input",)),
            Within("usage", ("input",)),
            "promptTokens",
            "inputUsage",
        ),
        "langsmith": (
            "prompt_tokens",
            Within("extra", ("metadata", "usage_metadata", "input_tokens")),
            Within("outputs", ("usage_metadata", "input_tokens")),
        ),
        "rows": ("tokens_in",),
    },
    "tokens_out": {
        "otlp": (
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.completion_tokens",
            "llm.token_count.completion",
            Within("langfuse.observation.usage_details", ("output",)),
            Within("langfuse.observation.usage_details", ("completion_tokens",)),
            Within("langsmith.metadata.usage_metadata", ("output_tokens",)),
        ),
        "langfuse": (
            Within("usageDetails", ("output",)),
            Within("usage_details", ("output",)),
            Within("usage", ("output",)),
            "completionTokens",
            "outputUsage",
        ),
        "langsmith": (
            "completion_tokens",
            Within("extra", ("metadata", "usage_metadata", "output_tokens")),
            Within("outputs", ("usage_metadata", "output_tokens")),
        ),
        "rows": ("tokens_out",),
    },
    "cost_usd": {
        "otlp": ("llm.cost.total", Within("langfuse.observation.cost_details", ("total",)), "operation.cost"),
        "langfuse": (
            "totalCost",
            "calculatedTotalCost",
            Within("costDetails", ("total",)),
            Within("cost_details", ("total",)),
        ),
        "langsmith": ("total_cost",),
        "rows": ("cost_usd",),
    },
    "session_id": {
        "otlp": (
            "session.id",
            "langfuse.session.id",
            "gen_ai.conversation.id",
            "traceloop.association.properties.session_id",
            "langsmith.metadata.session_id",
            "langsmith.metadata.thread_id",
            "langsmith.metadata.conversation_id",
        ),
        "langfuse": ("sessionId", "session_id"),
        "langsmith": (
            Within("extra", ("metadata", "session_id")),
            Within("extra", ("metadata", "thread_id")),
            Within("extra", ("metadata", "conversation_id")),
        ),
        "rows": ("session_id",),
    },
    "user_id": {
        "otlp": (
            "user.id",
            "langfuse.user.id",
            "enduser.id",
            "traceloop.association.properties.user_id",
            "langsmith.metadata.user_id",
        ),
        "langfuse": ("userId", "user_id"),
        "langsmith": (Within("extra", ("metadata", "user_id")),),
        "rows": ("user_id",),
    },
    "tags": {
        "otlp": ("langfuse.trace.tags", "tag.tags", "langsmith.span.tags"),
        "langfuse": ("tags",),
        "langsmith": ("tags",),
        "rows": ("tags",),
    },
    "version": {
        "otlp": ("langfuse.version", "langfuse.release", OfResource("service.version")),
        "langfuse": ("version", "release"),
        "langsmith": (Within("extra", ("metadata", "revision_id")),),
        "rows": ("version",),
    },
    "environment": {
        "otlp": (
            "langfuse.environment",
            OfResource("langfuse.environment"),
            OfResource("deployment.environment.name"),
            OfResource("deployment.environment"),
        ),
        "langfuse": ("environment",),
        "langsmith": (),
        "rows": ("environment",),
    },
    "service": {"otlp": (OfResource("service.name"),), "langfuse": (), "langsmith": (), "rows": ("service",)},
    "tool_name": {
        "otlp": ("gen_ai.tool.name", "tool.name", "traceloop.entity.name"),
        "langfuse": (),
        "langsmith": (),
        "rows": (),
    },
    "tool_call_id": {"otlp": ("gen_ai.tool.call.id", "tool.id"), "langfuse": (), "langsmith": (), "rows": ()},
}
"""For each field of an observation, where its value lies by source; the first that is there counts."""

MOST: Mapping[str, float] = {"cost_usd": 1e6, "tokens_in": 1e9, "tokens_out": 1e9}
"""The largest plausible number of a field of one observation. What is larger, or below 0, is unknown: one forged or
faulty span would decide every sum."""

IMPLAUSIBLE = "evalflows.implausible."
"""How the names of attributes begin that keep a time that is not plausible."""

TYPES: Mapping[str, str] = {
    "chat": "generation",
    "completion": "generation",
    "text_completion": "generation",
    "generate_content": "generation",
    "generation": "generation",
    "llm": "generation",
    "tool": "tool",
    "execute_tool": "tool",
    "agent": "agent",
    "invoke_agent": "agent",
    "create_agent": "agent",
    "chain": "chain",
    "prompt": "chain",
    "workflow": "chain",
    "invoke_workflow": "chain",
    "task": "chain",
    "retriever": "retriever",
    "retrieval": "retriever",
    "rerank": "retriever",
    "reranker": "retriever",
    "embedding": "embedding",
    "embeddings": "embedding",
    "evaluator": "evaluator",
    "evaluate": "evaluator",
    "guardrail": "guardrail",
    "event": "event",
    "span": "span",
}
"""What instrumentations call a kind of observation, in lower case, and its type; others are a `span`."""

LONG = ("input", "output", "tags")
"""Fields whose value may be too long to be among the short attributes."""

OWN_METADATA: Mapping[Source, tuple[str, ...]] = {
    "otlp": (
        "langfuse.trace.metadata.",
        "langfuse.observation.metadata.",
        "langsmith.metadata.",
        "traceloop.association.properties.",
        "metadata",
    ),
    "langfuse": ("metadata",),
    "langsmith": ("extra",),
    "rows": ("metadata",),
}
"""Where the metadata lies that the application itself gave: an attribute, or a prefix if the name ends in a dot."""
