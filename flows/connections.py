"""Connections: tried, as `evalflows connections --test` does, and their keys, also from Secret blocks of Prefect."""

from tasks.connections import Trial, try_connections
from tasks.keys import key_for

__all__ = ["Trial", "key_for", "try_connections"]
