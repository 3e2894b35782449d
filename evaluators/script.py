"""What a program must know about the world's scripts to find words in a text."""

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
"""Ranges of characters that are written without spaces between words, or that glue particles to them: Thai, Lao,
Burmese, Khmer, Chinese, Japanese, Korean. For use inside a class of a regular expression."""
