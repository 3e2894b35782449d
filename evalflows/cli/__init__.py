"""The `evalflows` command."""

from evalflows.specs.process_memory import search_rarely

search_rarely()  # also while the command's own modules load
