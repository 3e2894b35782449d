"""Other systems' names and shapes over this one, so that a program moves by changing its imports."""
