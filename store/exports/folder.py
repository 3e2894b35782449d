"""Exports to a folder: one Parquet or CSV file per view, and a file that says what they are of."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from evalflows.specs.errors import InputError
from evalflows.specs.file_locks import try_lock
from evalflows.store.exports.csv_file import write_csv_file
from evalflows.store.exports.relations import Exported, Relation, relations, stage
from evalflows.store.exports.whole_files import whole_file
from evalflows.store.parquet import Store

MARK = "evalflows_export.json"
"""The file that marks a folder as an export: of which store, in which form, and the state of each view's file."""

Form = Literal["parquet", "csv"]


@dataclass(frozen=True, slots=True)
class _File:
    state: str
    rows: int


def export_folder(store: Store, folder: Path, form: Form, only: Sequence[str] = ()) -> list[Exported]:
    """Write one file per view, `NAME.parquet` or `NAME.csv`; leave files alone whose view is unchanged.

    Unless only some are wanted, files of an earlier export are removed whose view no longer exists.
    Each file is written whole or not at all. Raise InputError if the folder holds anything but an export of this store
    in this form, for an unknown name, and if a file cannot be written.
    """
    if folder.is_dir():  # refused at once, if it is
        _files(folder, store.layout.root, form)
    wanted = relations(store, only)
    with _locked(folder):
        files = _files(folder, store.layout.root, form)
        unchanged = {one.name for one in wanted if _is_unchanged(folder, form, one, files)}
        if not only:
            _remove(folder, form, files, files.keys() - {one.name for one in wanted})
        stale = [one for one in wanted if one.name not in unchanged]
        for one in stale:  # so that an export that is interrupted is not taken for a finished one
            files.pop(one.name, None)
        _write_mark(folder, store.layout.root, form, files)
        for one in stale:
            files[one.name] = _File(one.state, _write(store, one, folder / f"{one.name}.{form}", form))
        _write_mark(folder, store.layout.root, form, files)
    return [Exported(name=one.name, rows=files[one.name].rows, is_written=one.name not in unchanged) for one in wanted]


def _remove(folder: Path, form: Form, files: dict[str, _File], names: Iterable[str]) -> None:
    """Remove the files of an earlier export whose views no longer exist. Raise InputError if one cannot be removed."""
    for name in names:
        if Path(name).name == name:  # never outside the folder, whatever its mark says
            target = folder / f"{name}.{form}"
            try:
                target.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(f"{target}: cannot be removed: {error.strerror or error}") from error
        del files[name]


def _write(store: Store, relation: Relation, target: Path, form: Form) -> int:
    with whole_file(target) as temporary:
        if form == "parquet":
            return stage(store, relation, temporary)
        with TemporaryDirectory(prefix="evalflows-") as scratch:
            staged = Path(scratch) / "staged.parquet"
            count = stage(store, relation, staged)
            write_csv_file(temporary, staged, relation.columns)
            return count


def _is_unchanged(folder: Path, form: Form, relation: Relation, files: dict[str, _File]) -> bool:
    known = files.get(relation.name)
    return known is not None and known.state == relation.state and (folder / f"{relation.name}.{form}").is_file()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Create the folder if it is missing, and lock it. Raise InputError if that fails, or if it is locked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    try:
        if not try_lock(descriptor):
            raise InputError(f"{folder}: another export writes there; wait until it has ended, then try again")
        yield
    finally:
        os.close(descriptor)


def _files(folder: Path, root: str, form: Form) -> dict[str, _File]:
    """Return the files of an earlier export; none for an empty folder. Raise InputError for anything else."""
    if not any(folder.iterdir()):
        return {}
    mark: Any = None
    with suppress(OSError, ValueError):
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
    if not isinstance(mark, dict) or not isinstance(mark.get("files"), dict):
        raise InputError(f"{folder}: got a folder with other files, wanted a new folder, or one of an earlier export")
    if (mark.get("store"), mark.get("format")) != (root, form):
        raise InputError(
            f"{folder}: got an export of {mark.get('store')} as {mark.get('format')}, wanted one of {root} as {form}"
        )
    return {name: _File(**known) for name, known in mark["files"].items()}


def _write_mark(folder: Path, root: str, form: Form, files: dict[str, _File]) -> None:
    listed = {name: asdict(file) for name, file in sorted(files.items())}
    text = json.dumps({"store": root, "format": form, "files": listed}, indent=1)
    with suppress(OSError):
        if (folder / MARK).read_text(encoding="utf-8") == text:
            return
    with whole_file(folder / MARK) as temporary:
        temporary.write_text(text, encoding="utf-8")
