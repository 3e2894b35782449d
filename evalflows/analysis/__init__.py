"""From rows to conclusions; knows no Prefect, writes no files."""
