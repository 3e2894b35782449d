import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from evalflows.specs.process_memory import with_one_stack

PROGRAM = """
import atexit, gc, os
atexit.register(lambda: os.write(1, b"frozen " if gc.get_freeze_count() else b"searched "))
from evalflows.specs.process_memory import without_collection

class Cycle:
    def __init__(self): self.me = self

class Ending(Cycle):
    def __del__(self): os.write(1, b"ended ")

with without_collection():
    kept = Cycle()
"""


def test_at_exit_python_searches_for_cycles_only_if_one_may_have_something_to_do(tmp_path: Path) -> None:
    def ends(more: str = "") -> str:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM + more], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    assert ends() == ends("kept.file = open(os.devnull)") == "frozen "
    assert ends("kept.ending = Ending()") == "searched ended "
    assert ends("del kept; Ending()") == "ended frozen "
    assert ends("kept.file = open('kept.txt', 'w'); kept.file.write('whole')") == "searched "
    assert (tmp_path / "kept.txt").read_text() == "whole"
    assert ends("import io; kept.bytes = io.BufferedWriter(io.BytesIO()); kept.bytes.detach()") == "searched "
    assert ends("import duckdb; kept.connection = duckdb.connect()") == "searched "
    looks = "process_memory._has_ends = lambda: os.write(1, b'looked ')"
    quick = f"from evalflows.specs import process_memory; process_memory.end_quickly(); {looks}"
    assert ends(quick) == "frozen "
    (tmp_path / "own.py").write_text(
        "class Own:\n    def __init__(self): self.me, self.file = self, open('own.txt', 'w')\n"
    )
    own = "from evalflows.specs.reference import load; Own = load('own:Own'); Own().file.write('whole')"
    assert ends(f"{quick}; {own}") == "frozen "
    assert (tmp_path / "own.txt").read_text() == "whole"


def test_no_call_below_one_stack_maps_memory() -> None:
    def call_often() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(500):
            (lambda: None)()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def at(depth: int, function: Callable[[], int]) -> int:
        return at(depth - 1, function) if depth else function()

    def most() -> int:
        return max(at(depth, call_often) for depth in range(250))

    assert with_one_stack(lambda: most())() < 500
