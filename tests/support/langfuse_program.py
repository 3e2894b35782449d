"""The program of instrumented.py under langfuse. It writes what it exported to stdout, in OpenTelemetry's protocol."""

import sys

from endpoint import Endpoint, serving
from instrumented import QUESTION, RESULT, Exported, answer, ask, exporting
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans


def run(exported: Exported | None, endpoint: Endpoint) -> None:
    """Run the program. What it exports is kept in memory, or without that, sent as the environment says."""
    from langfuse import Langfuse, observe, propagate_attributes
    from langfuse.openai import OpenAI

    if exported is None:
        langfuse = Langfuse()
    else:
        langfuse = Langfuse(
            public_key="pk",
            secret_key="sk",
            host="http://127.0.0.1:9",
            tracer_provider=exported.tracer_provider,
            span_exporter=exported.spans,
        )

    @observe(as_type="tool")
    def weather(city: str) -> dict[str, str]:
        return RESULT

    @observe(name="answer")
    def answered(question: str) -> str | None:
        with propagate_attributes(
            trace_name="user-query",
            session_id="s1",
            user_id="u1",
            tags=["production"],
            version="1.5",
            metadata={"plan": "paid"},
        ):
            return ask(client, weather)

    with OpenAI(base_url=endpoint.base_url, api_key="k") as client:
        answered(question=QUESTION)
    langfuse.flush()


if __name__ == "__main__":
    with serving(Endpoint(answer=answer)) as endpoint, exporting() as exported:
        run(exported, endpoint)
        sys.stdout.buffer.write(encode_spans(exported.spans.get_finished_spans()).SerializeToString())
