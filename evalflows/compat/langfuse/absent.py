"""Names of Langfuse's package that do not exist here, and what to use instead."""

from collections.abc import Mapping

from evalflows.compat.refusal import Absent

_TRACES = "keep Langfuse's SDK, or any other of OpenTelemetry, for tracing, and send its spans to `evalflows receive`"
_BLOCK = "use `with langfuse.start_as_current_observation(name=…, as_type=…)`, or `@observe()`"
_PROMPTS = "keep prompts in files; their content counts for the version of the code that names them"
_MEDIA = "put files into a dataset as attachments: docs/reference/specs.md"
_NO_PAGE = "there is no server; `evalflows show` and `evalflows traces show` print what is stored"

NAMES: Mapping[str, str] = {
    **dict.fromkeys(("LangfuseSpan", "LangfuseGeneration", "LangfuseEvent", "LangfuseAgent", "LangfuseTool"), _TRACES),
    **dict.fromkeys(("LangfuseChain", "LangfuseEmbedding", "LangfuseEvaluator", "LangfuseRetriever"), _TRACES),
    **dict.fromkeys(("LangfuseGuardrail", "LangfuseOtelSpanAttributes", "span_filter"), _TRACES),
    **dict.fromkeys(("is_default_export_span", "is_genai_span", "is_known_llm_instrumentor"), _TRACES),
    **dict.fromkeys(("is_langfuse_span", "ObservationTypeLiteral"), _TRACES),
    **dict.fromkeys(("LangfuseMedia", "LangfuseMediaReference", "media"), _MEDIA),
    **dict.fromkeys(("RegressionError", "RunnerContext"), "declare gates in a spec: docs/guides/gates.md"),
}
"""Names of modules, and what to use instead."""

METHODS: Mapping[str, str] = {
    **dict.fromkeys(("start_observation", "start_span", "start_generation"), _BLOCK),
    **dict.fromkeys(("start_as_current_span", "start_as_current_generation"), _BLOCK),
    **dict.fromkeys(("create_event",), _TRACES),
    **dict.fromkeys(("get_current_trace_id", "get_current_observation_id", "create_trace_id", "run"), _TRACES),
    **dict.fromkeys(("score_current_span", "score_current_trace", "resolve_media_references"), _TRACES),
    **dict.fromkeys(("create_prompt", "get_prompt", "update_prompt", "clear_prompt_cache"), _PROMPTS),
    **dict.fromkeys(("get_trace_url", "set_current_trace_as_public", "async_api"), _NO_PAGE),
    "get_trace": "use api.trace.get",
    "fetch_traces": "use api.trace.list",
    "get_traces": "use api.trace.list",
    "get_dataset_run": "use evalflows.store.connect() and its view experiments",
    "get_dataset_runs": "use evalflows.store.connect() and its view experiments",
    "delete_dataset_run": "experiments are kept; start another one",
    **dict.fromkeys(("create_score", "score"), "judge by run_batched_evaluation; people label: docs/guides/people.md"),
}
"""Methods of the client and of datasets, and what to use instead."""

ABSENT = Absent(NAMES, METHODS, page="docs/guides/langfuse.md")
