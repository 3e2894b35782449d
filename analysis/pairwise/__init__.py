"""Pairwise comparisons: win rates, ratings, judge biases."""
