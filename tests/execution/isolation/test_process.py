"""Plain code with a time limit: whatever it does, it ends, and all other answers and errors arrive as they are."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from isolated import Make, failed, is_gone, is_running, judged, pid_of, read_when_there
from odd_evaluators import hangs, where
from user_places import without_places

from evalflows.engine.isolated import MAX_PROCESSES, IsolatedEvaluator, check_picklable
from evalflows.engine.worker import KILL_DELAY_S
from evalflows.evaluators import Score
from evalflows.evaluators.binding import bind
from evalflows.specs.errors import InputError

ROOT = Path(__file__).parents[3]

# What it says


def test_it_judges_in_another_process_and_always_in_the_same_one(isolated: Make) -> None:
    def here(outputs: Any) -> Score:
        return Score(value=outputs["n"] / 4, comment=str(os.getpid()), metadata={"n": outputs["n"]})

    one = isolated(here)
    first, second = (judged(one, {"n": n}) for n in (1, 2))
    assert (first.metric, first.value, first.data_type, first.metadata) == ("mine", 0.25, "NUMERIC", {"n": 1})
    assert second.value == 0.5
    assert first.comment == second.comment != str(os.getpid())


def test_every_kind_of_return_arrives_as_what_it_is(shared: IsolatedEvaluator) -> None:
    for returned, wanted in (
        (None, [("mine", "not_applicable", None, None, None)]),
        ("good", [("mine", "scored", None, "good", None)]),
        (False, [("mine", "scored", 0.0, None, None)]),
        (
            [Score(key="b", label="x"), Score(value=0, turn=2)],
            [("b", "scored", None, "x", None), ("mine", "scored", 0.0, None, 2)],
        ),
    ):
        found = shared.judge({"outputs": (lambda outputs, returned=returned: returned, None)}, {})
        assert [(one.metric, one.status, one.value, one.label, one.turn) for one in found] == wanted
    for returned, said in (
        (float("nan"), "ValueError: returned nan, wanted a finite number"),
        ({1, 2}, "TypeError: returned set, wanted a bool"),
        ([1, 2], "ValueError: returned 2 scores called 'mine'"),
    ):
        kind, text = failed(shared, (lambda outputs, returned=returned: returned, None))
        assert kind == "bad_return" and text.startswith(said)


def test_an_object_has_its_state_there_and_large_answers_pass_in_both_directions(isolated: Make) -> None:
    class Counts:
        def __init__(self) -> None:
            self.seen = 10

        def __call__(self, outputs: Any, complete: Any) -> Score:
            self.seen += 1
            return Score(value=self.seen, comment=complete(outputs + outputs))

    counts, text = Counts(), "x" * 5_000_000
    one = isolated(counts)
    for number in (11.0, 12.0, 13.0):
        found = judged(one, text, complete=lambda asked: asked + "y")
        assert found.value == number and found.comment == text + text + "y"
    assert counts.seen == 10


def test_what_cannot_move_is_said_before_anything_is_judged() -> None:
    lock = threading.Lock()

    def locked(outputs: Any) -> bool:
        with lock:
            return True

    with pytest.raises(InputError, match="evaluator 'locked': timeout_s: it cannot be sent to another process"):
        check_picklable(bind(locked))
    check_picklable(bind(where))


# What goes wrong in it


def test_what_it_raises_is_told_in_its_words_and_it_judges_on(shared: IsolatedEvaluator) -> None:
    def fussy(outputs: Any) -> Score:
        raise KeyError("no such answer")

    def odd(outputs: Any) -> Score:
        return Score(value=1, metadata={"lock": threading.Lock()})

    before = judged(shared, (where, None)).comment
    kind, error = failed(shared, (fussy, None))
    assert (kind, without_places(error)) == ("raised", "KeyError: 'no such answer'")
    assert f"test_process.py:{fussy.__code__.co_firstlineno + 1} in fussy" in error
    kind, error = failed(shared, (odd, None))
    assert kind == "bad_return" and "lock" in error, "it cannot be moved back"
    assert judged(shared, (where, None)).comment == before


def test_one_that_ends_its_process_is_a_failed_judgement_and_another_judges_on(isolated: Make) -> None:
    def ends(outputs: Any) -> Score:
        if outputs == "exit":
            os._exit(3)
        if outputs == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return where(outputs)

    one = isolated(ends)
    for how, status in (("exit", 3), ("kill", -9)):
        assert failed(one, how) == ("raised", f"its process exited with {status}")
        before = pid_of(one)
    os.kill(before, signal.SIGKILL)  # while it waits
    os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)  # it is not buried yet
    assert pid_of(one) != before


# What it prints and reads


def test_what_it_prints_disturbs_nothing_and_is_seen(isolated: Make, capfd: pytest.CaptureFixture[str]) -> None:
    def talks(outputs: Any) -> bool:
        print("from Python")
        os.write(1, b"from below\n")
        subprocess.run([sys.executable, "-c", "print('from another program')"], check=True)
        sys.__stdout__.write("from the old one\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        return True

    one = isolated(talks)
    assert [judged(one).value for _ in range(2)] == [1.0, 1.0]
    seen = capfd.readouterr().err
    assert [seen.count(each) for each in ("Python", "below", "another program", "old one")] == [2, 2, 2, 2]


def test_there_is_nothing_for_it_to_read(isolated: Make) -> None:
    """What it read would be messages; and what waits for more would wait for ever."""

    def reads(outputs: Any) -> Score:
        said = subprocess.run(["cat"], capture_output=True, check=True).stdout
        return Score(value=len(said), comment=repr(sys.stdin.read() + os.read(0, 10).decode()))

    one = isolated(reads, timeout_s=10)
    assert [(judged(one).value, judged(one).comment) for _ in range(2)] == [(0.0, "''")] * 2


# What takes too long


@pytest.mark.slow
@pytest.mark.parametrize("how", ["backtracks", "is_deaf", "runs_another"])
def test_what_takes_too_long_is_really_ended_and_another_judges_on(isolated: Make, tmp_path: Path, how: str) -> None:
    one, path = isolated(hangs, timeout_s=0.5, how=how, path=str(tmp_path / "pids")), tmp_path / "pids"
    before, began = pid_of(one), time.monotonic()
    assert failed(one, "hang") == ("too_slow", "took longer than 0.5 s and was stopped")
    assert time.monotonic() - began < 5
    processes = [int(line) for line in path.read_text().split()]
    assert processes[0] == before and len(processes) == (2 if how == "runs_another" else 1)
    assert all(is_gone(pid) for pid in processes), "and so is what it has begun"
    assert pid_of(one) != before


# Many at once, and the end


def test_many_threads_at_once_share_few_processes_and_each_has_its_answer(isolated: Make) -> None:
    def slow_double(outputs: Any, complete: Any) -> Score:
        time.sleep(0.002)
        return Score(value=complete(outputs) * 2, comment=str(os.getpid()))

    one = isolated(slow_double)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda n: judged(one, n, complete=lambda asked: asked + 1), range(200)))
    assert [each.value for each in found] == [2.0 * (n + 1) for n in range(200)]
    assert len({each.comment for each in found}) <= MAX_PROCESSES


@pytest.mark.slow
def test_to_close_it_ends_all_its_processes_and_buries_them(isolated: Make) -> None:
    def both(outputs: Any) -> Score:
        time.sleep(0.2)
        return where(outputs)

    one = isolated(both)
    with ThreadPoolExecutor(4) as threads:
        processes = {int(found.comment or 0) for found in threads.map(lambda _: judged(one), range(8))}
    assert all(map(is_running, processes))
    one.close()
    for pid in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    one.close()


PARENT = """
    import re, sys, time
    from pathlib import Path
    from evalflows.evaluators.binding import bind
    from evalflows.engine.isolated import IsolatedEvaluator

    def judge(outputs):
        import os
        Path({pid!r}).write_text(f"{{os.getpid()}}\\n")
        if {hangs}:
            re.fullmatch(r"(a+)+b", "a" * 64)
        return True

    IsolatedEvaluator(bind(judge), {timeout_s}).judge({{"outputs": None}}, {{}}) if {hangs} else None
    one = IsolatedEvaluator(bind(judge), {timeout_s})
    one.judge({{"outputs": None}}, {{}})
    time.sleep(3600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hangs", "within_s"), [(False, 10.0), (True, 0.5 + KILL_DELAY_S + 10.0)], ids=["waiting", "hanging"]
)
def test_nothing_is_left_behind_where_the_parent_is_killed(tmp_path: Path, hangs: bool, within_s: float) -> None:
    """One that waits sees that nobody will ask it; one that is busy is ended by the system, soon after its time."""
    path, script = tmp_path / "pid", tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT.format(pid=str(path), hangs=hangs, timeout_s=0.5)))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.DEVNULL) as parent:
        pid = read_when_there(path)
        if not hangs:
            time.sleep(0.3)  # it has answered, and waits
        parent.kill()
    assert is_gone(pid, within_s)
