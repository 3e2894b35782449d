"""Composite scores: their parts, and how robust they are to the weights."""
