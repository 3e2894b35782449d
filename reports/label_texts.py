"""A person's label as text."""

from evalflows.reports.figures import figure
from evalflows.store.records import DataType


def label_text(value: float | None, label: str | None, data_type: DataType | None) -> str:
    """Return a label as people gave it: yes or no, a number, a category, or of two answers the better side."""
    if label is not None:
        return label
    if value is not None and data_type == "BOOLEAN":
        return "yes" if value == 1 else "no"
    return figure(value, "", digits=None if value is None or value != int(value) else 0)
