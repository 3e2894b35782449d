"""Names of LangSmith's package that do not exist here, and what to use instead."""

from collections.abc import Mapping

from evalflows.compat.refusal import Absent

_ADDRESS = "there is one store, which EVALFLOWS_STORE names; leave it out"
_PROMPTS = "keep prompts in files; their content counts for the version of the code that names them"
_LABELS = "people label answers in a form: `evalflows labels next`, docs/guides/people.md"
_TRACES = "runs belong to experiments: give evaluate a target, and use traceable or trace inside it"
_NO_PAGE = "there is no server; `evalflows show` prints an experiment, and its rows are Parquet files to copy"
_KEPT = "judgements and labels are kept; create_feedback adds another one"

NAMES: Mapping[str, str] = {
    "anonymizer": "everything is stored unchanged; leave sensitive data out of inputs and outputs",
    **dict.fromkeys(("configure", "set_runtime_overrides"), _ADDRESS),
    "set_run_metadata": "use get_current_run_tree().add_metadata, or metadata= in traceable",
    "get_tracing_context": "use get_current_run_tree",
    **dict.fromkeys(("uuid7", "uuid7_from_datetime"), "use uuid.uuid4"),
    "ContextThreadPoolExecutor": "run contextvars.copy_context().run in a ThreadPoolExecutor",
    **dict.fromkeys(("PromptCache", "AsyncPromptCache"), _PROMPTS),
    **dict.fromkeys(("configure_global_prompt_cache", "configure_global_async_prompt_cache"), _PROMPTS),
    "wrap_anthropic": "wrap_openai records OpenAI's clients; make other calls inside a traceable function",
    "wrap_gemini": "wrap_openai records OpenAI's clients; make other calls inside a traceable function",
    "aevaluate_comparative": "use aevaluate of two experiments",
}
"""Names of modules, and what to use instead."""

METHODS: Mapping[str, str] = {
    **dict.fromkeys(("create_prompt", "pull_prompt", "push_prompt", "get_prompt", "list_prompts"), _PROMPTS),
    **dict.fromkeys(("update_prompt", "delete_prompt", "pull_prompt_commit", "list_prompt_commits"), _PROMPTS),
    **dict.fromkeys(("create_annotation_queue", "read_annotation_queue", "list_annotation_queues"), _LABELS),
    **dict.fromkeys(("add_runs_to_annotation_queue", "get_run_from_annotation_queue"), _LABELS),
    **dict.fromkeys(("create_run", "update_run", "batch_ingest_runs", "multipart_ingest"), _TRACES),
    **dict.fromkeys(("create_project", "update_project", "list_threads", "read_thread"), _TRACES),
    **dict.fromkeys(("share_run", "unshare_run", "share_dataset", "unshare_dataset", "get_run_url"), _NO_PAGE),
    **dict.fromkeys(("read_shared_run", "read_shared_dataset", "list_shared_examples"), _NO_PAGE),
    **dict.fromkeys(("update_feedback", "delete_feedback"), _KEPT),
    "read_feedback": "use list_feedback",
    "delete_project": "experiments are kept; start another one",
    "create_chat_example": "use create_example",
    "create_llm_example": "use create_example",
    "create_example_from_run": "use create_example with the run's inputs and outputs",
    "upload_examples_multipart": "use create_examples",
    "upsert_examples_multipart": "use create_examples and update_examples",
    "update_examples_multipart": "use update_examples",
    "clone_public_dataset": "use upload_csv or create_examples with a copy of its rows",
    "read_dataset_openai_finetuning": "use list_examples",
    "similar_examples": "search among list_examples",
    "index_dataset": "search among list_examples",
    "create_comparative_experiment": "use evaluate_comparative",
    "evaluate_run": "use evaluate_existing",
    "aevaluate_run": "use aevaluate_existing",
    "aread_project": "use read_project",
    "get_run_stats": "use read_project with include_stats=True",
}
"""Methods of the client, and what to use instead."""

ABSENT = Absent(NAMES, METHODS, page="docs/guides/langsmith.md")
