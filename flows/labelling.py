"""What people should label next, as `evalflows labels next` has it."""

from tasks.label_next import ToLabel, next_to_label

__all__ = ["ToLabel", "next_to_label"]
