"""Connections, tried: what `evalflows connections --test` calls."""

from tasks.connections import Trial, try_connections

__all__ = ["Trial", "try_connections"]
