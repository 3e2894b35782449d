"""Paired metrics, their tests and verdicts."""
