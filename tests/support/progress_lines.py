"""What a run without a terminal says besides its progress."""

STAGES = (
    "starting Prefect",
    "resuming",
    "answering and judging",
    "comparing pairs",
    "combining scores",
    "computing differences",
    "computing win rates",
    "deciding",
    "looking at windows",
)


def is_progress(line: str) -> bool:
    return line.startswith(tuple(f"evalflows: {stage}{end}" for stage in STAGES for end in (":", ",", "\n")))


def without_progress(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not is_progress(line))
