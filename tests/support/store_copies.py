"""Copies of small stores, from memory: half of the time of copying the files, and a tenth of that of making a store."""

from pathlib import Path


class StoreCopies:
    """Makes copies of the folder of a store that holds little or nothing."""

    def __init__(self, root: Path, marker: str) -> None:
        below = {path.relative_to(root): path for path in sorted(root.rglob("*"))}
        self._folders = [str(name) for name, path in below.items() if path.is_dir()]
        files = {str(name): path.read_bytes() for name, path in below.items() if path.is_file()}
        last = {marker: files.pop(marker)}  # whoever sees it takes the store for whole
        self._files = files | last

    def make(self, root: str) -> None:
        Path(root).mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in self._folders:
            Path(f"{root}/{folder}").mkdir(exist_ok=True)
        for name, content in self._files.items():
            Path(f"{root}/{name}").write_bytes(content)
