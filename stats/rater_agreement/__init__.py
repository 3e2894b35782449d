"""Agreement between raters, and estimates corrected with human labels."""
