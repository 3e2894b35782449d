"""Judges against people: agreement, and what to label next."""
