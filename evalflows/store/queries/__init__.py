"""Queries of the store: metric values, histories, progress, lookups."""
