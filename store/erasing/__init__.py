"""Erasing the texts of examples, traces and people; and removing what rules say is too old."""
