"""Weights of composites and of samples."""
