"""The names that instrumentations give to the same thing: a versioned table, applied whenever traces are read.

The store keeps attributes as they came, since GenAI conventions still change their names. The views of SQL
(evalflows/store/views.py) and the objects that mappers and evaluators get (telemetry/) use this table, so a new name
needs a line here, and traces that were stored before have it too.
"""

from collections.abc import Mapping
from typing import Literal

from evalflows.specs.frozen import dataclass

VERSION = 5
"""Raised when a name is added or moved."""

NOT_CAPTURED = "__REDACTED__"
"""What OpenInference writes for content that it was told to leave out."""

LISTED_COST = "evalflows.listed_cost_usd"
"""The attribute with the cost of a call that came without one, by the price list."""

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


@dataclass(frozen=True, slots=True)
class Implied:
    """What an observation is that has an attribute, whatever the attribute's value."""

    attribute: str
    value: str


@dataclass(frozen=True, slots=True)
class Numbered:
    """Messages with an attribute per field, such as `gen_ai.prompt.0.role`; `inner` stands before the field."""

    prefix: str
    inner: str = ""


@dataclass(frozen=True, slots=True)
class OfEvents:
    """Messages in events: their names, and the first field of each that is there. The events are those of the
    observation, or an attribute's."""

    names: tuple[str, ...]
    fields: tuple[str, ...]
    attribute: str | None = None


Alias = str | Within | OfResource | Implied | Numbered | OfEvents
"""An attribute's name, or where else a value lies."""

DETAILS = "gen_ai.client.inference.operation.details"
"""The event with the content of a model call."""
PROMPT, COMPLETION, CHOICE = "gen_ai.content.prompt", "gen_ai.content.completion", "gen_ai.choice"
EVENT_ROLES: Mapping[str, str] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
"""Events that are a message each, and the role of a message that names none."""
BODIES = ("body", "gen_ai.event.content", "event_body")
"""Attributes under which an event's body may be: of a log record, and of the span events of some packages."""
OLDER_LISTS = ("events", "all_messages_events")
"""Attributes of earlier pydantic-ai that are lists of events."""
_ASKED = ("content", "tool_calls", "gen_ai.prompt", *BODIES)
_ANSWERED = ("message", "tool_calls", "content", "gen_ai.completion", *BODIES)

FIELDS: Mapping[str, Mapping[Source, tuple[Alias, ...]]] = {
    "trace_name": {"otlp": ("langfuse.trace.name", "langsmith.trace.name"), "langfuse": ("trace_name", "traceName")},
    "type": {
        "otlp": (
            "langfuse.observation.type",
            "openinference.span.kind",
            "gen_ai.operation.name",
            "traceloop.span.kind",
            "llm.request.type",
            "langsmith.span.kind",
            "ai.operationId",
            Within("mlflow.spanType", ()),
            Within("braintrust.span_attributes", ("type",)),
            Implied("gcp.vertex.agent.tool_call_args", "tool"),
            Implied("gen_ai.request.model", "generation"),
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
            "ai.prompt.messages",
            "ai.prompt",
            "ai.toolCall.args",
            "ai.value",
            "gcp.vertex.agent.tool_call_args",
            "gcp.vertex.agent.llm_request",
            "braintrust.input",
            "request_data",
            "llm.input_messages",
            Within("braintrust.input_json", ()),
            Within("mlflow.spanInputs", ()),
            Numbered("llm.input_messages", "message."),
            Numbered("gen_ai.prompt"),
            OfEvents((DETAILS,), ("gen_ai.input.messages",)),
            OfEvents((*EVENT_ROLES, PROMPT), _ASKED),
            *(OfEvents((*EVENT_ROLES,), _ASKED, attribute) for attribute in OLDER_LISTS),
            "pydantic_ai.all_messages",
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
            "ai.response.toolCalls",
            "ai.response.object",
            "ai.response.text",
            "ai.toolCall.result",
            "gcp.vertex.agent.tool_response",
            "gcp.vertex.agent.llm_response",
            "braintrust.output",
            "response_data",
            "llm.output_messages",
            Within("braintrust.output_json", ()),
            Within("mlflow.spanOutputs", ()),
            Numbered("llm.output_messages", "message."),
            Numbered("gen_ai.completion"),
            OfEvents((DETAILS,), ("gen_ai.output.messages",)),
            OfEvents((CHOICE, COMPLETION), _ANSWERED),
            *(OfEvents((CHOICE,), _ANSWERED, attribute) for attribute in OLDER_LISTS),
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
            "ai.response.model",
            "ai.model.id",
            Within("mlflow.llm.model", ()),
            Within("braintrust.metadata", ("model",)),
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
            *("langsmith.metadata.ls_provider", "gen_ai.provider.name", "gen_ai.system"),
            *("llm.provider", "llm.system", "ai.model.provider"),
        ),
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
            "ai.usage.inputTokens",
            "ai.usage.promptTokens",
            Within("mlflow.chat.tokenUsage", ("input_tokens",)),
            Within("braintrust.metrics", ("prompt_tokens",)),
            Within("response_data", ("usage", "prompt_tokens")),
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
            "ai.usage.outputTokens",
            "ai.usage.completionTokens",
            Within("mlflow.chat.tokenUsage", ("output_tokens",)),
            Within("braintrust.metrics", ("completion_tokens",)),
            Within("response_data", ("usage", "completion_tokens")),
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
        "otlp": (
            "llm.cost.total",
            Within("langfuse.observation.cost_details", ("total",)),
            "operation.cost",
            LISTED_COST,
        ),
        "langfuse": (
            "totalCost",
            "calculatedTotalCost",
            Within("costDetails", ("total",)),
            Within("cost_details", ("total",)),
            LISTED_COST,
        ),
        "langsmith": ("total_cost", LISTED_COST),
        "rows": ("cost_usd", LISTED_COST),
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
            "ai.telemetry.metadata.sessionId",
            "gcp.vertex.agent.session_id",
            Within("mlflow.trace.session", ()),
            "mlflow.trace.session",
            Within("braintrust.metadata", ("session_id",)),
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
            "ai.telemetry.metadata.userId",
            Within("mlflow.trace.user", ()),
            "mlflow.trace.user",
            Within("braintrust.metadata", ("user_id",)),
        ),
        "langfuse": ("userId", "user_id"),
        "langsmith": (Within("extra", ("metadata", "user_id")),),
        "rows": ("user_id",),
    },
    "tags": {
        "otlp": (
            *("langfuse.trace.tags", "tag.tags", "langsmith.span.tags"),
            *("braintrust.tags", "ai.telemetry.metadata.tags"),
        ),
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
        "rows": ("environment",),
    },
    "service": {"otlp": (OfResource("service.name"),), "rows": ("service",)},
    "tool_name": {"otlp": ("gen_ai.tool.name", "tool.name", "traceloop.entity.name", "ai.toolCall.name")},
    "tool_call_id": {"otlp": ("gen_ai.tool.call.id", "tool.id", "ai.toolCall.id")},
}
"""For each field of an observation, where its value lies by source, if the source has it; the first that is there
counts."""

MOST: Mapping[str, float] = {"cost_usd": 1e6, "tokens_in": 1e9, "tokens_out": 1e9}
"""The largest plausible number of a field of one observation. What is larger, or below 0, is unknown: one forged or
faulty span would decide every sum."""

IMPLAUSIBLE = "evalflows.implausible."
"""How the names of attributes begin that keep a time that is not plausible."""

TYPES: Mapping[str, str] = {
    **dict.fromkeys(("chat", "completion", "text_completion", "generate_content"), "generation"),
    **dict.fromkeys(("generation", "llm", "chat_model", "chat.completions", "text.completions"), "generation"),
    **dict.fromkeys(("ai.generatetext.dogenerate", "ai.streamtext.dostream"), "generation"),
    **dict.fromkeys(("ai.generateobject.dogenerate", "ai.streamobject.dostream"), "generation"),
    **dict.fromkeys(("tool", "execute_tool", "ai.toolcall"), "tool"),
    **dict.fromkeys(("agent", "invoke_agent", "create_agent"), "agent"),
    **dict.fromkeys(("ai.generatetext", "ai.streamtext", "ai.generateobject", "ai.streamobject"), "agent"),
    **dict.fromkeys(("chain", "prompt", "workflow", "invoke_workflow", "task", "agent_step"), "chain"),
    **dict.fromkeys(("ai.embed", "ai.embedmany"), "chain"),
    **dict.fromkeys(("retriever", "retrieval", "rerank", "reranker"), "retriever"),
    **dict.fromkeys(("embedding", "embeddings", "ai.embed.doembed", "ai.embedmany.doembed"), "embedding"),
    **dict.fromkeys(("evaluator", "evaluate", "score"), "evaluator"),
    "guardrail": "guardrail",
    "event": "event",
    "span": "span",
}
"""What instrumentations call a kind of observation, in lower case, and its type; others are a `span`."""

LONG = ("input", "output", "tags")
"""Fields whose value may be too long to be among the short attributes."""

OWN_METADATA: Mapping[Source, tuple[str, ...]] = {
    "otlp": (
        *(
            "langfuse.trace.metadata.",
            "langfuse.observation.metadata.",
            "langsmith.metadata.",
            "traceloop.association.properties.",
        ),
        *("ai.telemetry.metadata.", "braintrust.metadata", "metadata"),
    ),
    "langfuse": ("metadata",),
    "langsmith": ("extra",),
    "rows": ("metadata",),
}
"""Where the metadata lies that the application itself gave: an attribute, or a prefix if the name ends in a dot."""
