"""Files of traces: what a Collector, Langfuse or LangSmith exported, and plain rows, read record by record."""
