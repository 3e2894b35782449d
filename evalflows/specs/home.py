"""The folder of what evalflows keeps for a user, beside the stores."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

MOST_NOTES = 2000
"""Notes that a folder keeps; beyond that, the older half goes."""


def home_root() -> Path:
    """Return the folder in EVALFLOWS_HOME, else ~/.evalflows."""
    return Path(os.environ.get("EVALFLOWS_HOME") or Path.home() / ".evalflows").absolute()


def private_folder(name: str) -> Path | None:
    """Return a folder there to which nobody else can write, made if needed; None if there can be none."""
    with suppress(OSError, RuntimeError):  # the second from Path.home, for a user without a home
        folder = home_root() / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.lstat()
        is_own = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()
        if is_own and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return folder
    return None


def note(folder: str, name: str) -> str | None:
    """Return the note of this name in a private folder; None if there is none that can be read."""
    with suppress(OSError, UnicodeDecodeError):
        if (kept := private_folder(folder)) is not None:
            return (kept / name).read_text(encoding="utf-8")
    return None


def keep_note(folder: str, name: str, text: str) -> None:
    """Keep a note for the next process. Nothing is done if it cannot be kept: what it saves is then done again."""
    with suppress(OSError):
        if (kept := private_folder(folder)) is None or note(folder, name) == text:
            return
        temporary = kept / f".{name}.{secrets.token_hex(6)}.tmp"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(kept / name)
        if len(notes := [*kept.iterdir()]) > MOST_NOTES:
            for old in sorted(notes, key=lambda file: file.stat().st_mtime)[: MOST_NOTES // 2]:
                old.unlink(missing_ok=True)
