"""`evalflows run --watch`: a run after each change of a file that it uses, by a process of its own."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from command import command

SPEC = """
name: sums
dataset: {path: data.jsonl}
targets: [{kind: python, function: "app:answer"}]
evaluators: [contains]
run_key: kept
"""
APP = """
from pathlib import Path
import texts

def answer(inputs):
    Path("calls.log").open("a").write("called\\n")
    return Path("before.txt").read_text() + texts.AFTER + inputs["question"]
"""


@pytest.fixture
def lines(tmp_path: Path, prefect_environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """The command in a project of some files, and the lines that it prints."""
    for name, text in {"spec.yaml": SPEC, "app.py": APP, "texts.py": "AFTER = ''", "before.txt": ""}.items():
        (tmp_path / name).write_text(text)
    rows = [f'{{"inputs": {{"question": "{n}?"}}, "reference_outputs": {{"answer": "yes {n}?"}}}}\n' for n in range(3)]
    (tmp_path / "data.jsonl").write_text("".join(rows))
    own = os.environ | prefect_environment | {"COLUMNS": "80", "EVALFLOWS_STORE": "store"}
    process = subprocess.Popen(
        command("run", "spec.yaml", "--watch"),
        cwd=tmp_path,
        env=own,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed: Queue[str] = Queue()
    reading = Thread(target=lambda: [printed.put(line) for line in process.stdout or ()])
    reading.start()
    yield process, iter(lambda: printed.get(timeout=100), "")
    process.kill()
    process.wait()
    reading.join()


def until(text: str, lines: Iterator[str]) -> str:
    """Return what is printed up to a line with this text."""
    seen = []
    for line in lines:
        seen.append(line)
        if text in line:
            break
    return "".join(seen)


@pytest.mark.slow
def test_each_change_of_a_file_that_is_used_runs_again_and_prints_what_changed(
    lines: tuple[subprocess.Popen[str], Iterator[str]], tmp_path: Path
) -> None:
    process, printed = lines
    assert "system  mean" in until("watching 5 files; Ctrl-C stops", printed)
    (tmp_path / "calls.log").write_text("")  # written by the target, so its changes do not count
    (tmp_path / "before.txt").write_text("yes ")
    second = until("watching", printed)
    assert second.startswith("evalflows: before.txt changed\n")
    assert "contains 0.000 → 1.000" in second
    assert "contains: was 0, now 1" in second
    assert "system  mean" not in second  # as in the table of all results
    (tmp_path / "texts.py").write_text("AFTER = 'no")
    assert "SyntaxError" in until("watching", printed)
    (tmp_path / "texts.py").write_text("AFTER = 'no '")
    assert "contains 1.000 → 0.000" in until("watching", printed)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


def fifo(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.with_name("spec.yaml"))


HOSTILE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "half-written YAML": ("spec.yaml", lambda path: path.write_text(SPEC[: len(SPEC) // 2])),
    "an unclosed quote": ("spec.yaml", lambda path: path.write_text('name: "sums')),
    "binary YAML": ("spec.yaml", lambda path: path.write_bytes(bytes(range(256)) * 4_000)),
    "a huge scalar of YAML": ("spec.yaml", lambda path: path.write_text('name: "' + "a" * 500_000)),
    "a FIFO for YAML": ("spec.yaml", fifo),
    "a loop for YAML": ("spec.yaml", loop),
    "a folder for YAML": ("spec.yaml", Path.mkdir),
    "half a row": ("data.jsonl", lambda path: path.write_text('{"inputs": {"question": "1')),
    "binary rows": ("data.jsonl", lambda path: path.write_bytes(bytes(range(256)) * 4_000)),
    "a huge row": ("data.jsonl", lambda path: path.write_text('{"inputs": "' + "a" * 50_000_000)),
    "a FIFO for rows": ("data.jsonl", fifo),
    "a folder for rows": ("data.jsonl", Path.mkdir),
    "binary code": ("app.py", lambda path: path.write_bytes(bytes(range(256)) * 4_000)),
    "half-written code": ("app.py", lambda path: path.write_text(APP.partition('"calls')[0])),
}


@pytest.mark.soak
def test_hostile_files_are_one_line_each_and_it_goes_on(
    lines: tuple[subprocess.Popen[str], Iterator[str]], tmp_path: Path
) -> None:
    process, printed = lines
    until("watching", printed)
    for what, (name, write) in HOSTILE.items():
        path, kept = tmp_path / name, (tmp_path / name).read_bytes()
        write(tmp_path / ".new")
        if (tmp_path / ".new").is_dir():
            path.unlink()
        (tmp_path / ".new").rename(path)
        if what != "a loop for YAML":  # it is as if there were none
            said = [line for line in until("watching", printed).splitlines() if line.startswith("evalflows: ")]
            assert said[0] == f"evalflows: {name} changed" and len(said) == 3, (what, said)
        (tmp_path / ".new").write_bytes(kept + b"\n")
        if path.is_dir():
            path.rmdir()
        (tmp_path / ".new").replace(path)
        assert "Traceback" not in (again := until("watching", printed)), (what, again)
        print(f"{what}: {said[1]}")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
