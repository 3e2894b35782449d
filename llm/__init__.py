"""Calling a model: one path for every call."""
