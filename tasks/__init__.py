"""Prefect tasks, the steps of the flows. Each takes ids and specs, has one effect, and returns ids or rows."""
