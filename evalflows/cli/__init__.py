"""The `evalflows` command."""
