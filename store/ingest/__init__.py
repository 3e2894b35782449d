"""Read datasets, conversations and human labels into rows of the store."""
