"""Plain code with a time limit: whatever it does, it ends, and all other answers and errors arrive as they are."""

import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from odd_evaluators import error_of, hangs, refused, where

from evaluators import Score
from evaluators.call import bind
from evaluators.score import Judgement
from llm.faults import fault_of
from specs.errors import CallError, ErrorKind, InputError
from tasks import messages
from tasks.isolated import MOST_PROCESSES, Isolated, check_movable
from tasks.judging_process import AFTER

ROOT = Path(__file__).parents[2]

Make = Callable[..., Isolated]


@pytest.fixture
def isolated() -> Iterator[Make]:
    """`isolated(function, timeout_s)`; its processes are ended after the test."""
    made: list[Isolated] = []

    def make(function: Callable[..., Any], timeout_s: float = 30.0, **settings: Any) -> Isolated:
        made.append(Isolated(bind(function, name="mine", settings=settings), timeout_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Isolated]:
    """One process for all tests that harm none: its evaluator is what the answer holds, with what that is given."""

    def does(outputs: Any, complete: Any, embed: Any) -> Any:
        function, given = outputs
        asks = {"complete": complete, "embed": embed}
        return function(given, **{name: asks[name] for name in function.__code__.co_varnames if name in asks})

    one = Isolated(bind(does, name="mine"), 30.0)
    yield one
    one.close()


def judged(one: Isolated, outputs: Any = None, **asks: Callable[..., Any]) -> Judgement:
    """What it says of one answer."""
    offered: dict[str, Any] = {"inputs": {"question": "q"}, "outputs": outputs, "complete": None, "embed": None}
    (judgement,) = one.judge(offered, {"complete": None, "embed": None} | asks)
    return judgement


def failed(one: Isolated, outputs: Any = None, **asks: Callable[..., Any]) -> tuple[ErrorKind, str]:
    """How it failed."""
    with pytest.raises(CallError) as caught:
        judged(one, outputs, **asks)
    return caught.value.kind, str(caught.value)


def pid_of(one: Isolated) -> int:
    """Of an evaluator whose comment is the id of its process."""
    return int(judged(one).comment or 0)


def is_running(pid: int) -> bool:
    """Whether a process is there, and has not ended unburied."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_gone(pid: int, within_s: float = 5.0) -> bool:
    """Whether a process ends in the time."""
    until = time.monotonic() + within_s
    while is_running(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def read_when_there(path: Path, within_s: float = 20.0) -> int:
    """The number in a file that another process will write."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return int(text)
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


# What it says


def test_it_judges_in_another_process_and_always_in_the_same_one(isolated: Make) -> None:
    def here(outputs: Any) -> Score:
        return Score(value=outputs["n"] / 4, comment=str(os.getpid()), metadata={"n": outputs["n"]})

    one = isolated(here)
    first, second = (judged(one, {"n": n}) for n in (1, 2))
    assert (first.metric, first.value, first.data_type, first.metadata) == ("mine", 0.25, "NUMERIC", {"n": 1})
    assert second.value == 0.5
    assert first.comment == second.comment != str(os.getpid())


@pytest.mark.parametrize(("returned", "status"), [(None, "not_applicable"), ("good", "scored"), (False, "scored")])
def test_nothing_a_label_and_a_no_arrive_as_what_they_are(shared: Isolated, returned: Any, status: str) -> None:
    found = judged(shared, (lambda outputs: returned, None))
    assert (found.status, found.label) == (status, "good" if returned == "good" else None)
    assert found.value == (0.0 if returned is False else None)


def test_closures_partials_and_settings_move_too(isolated: Make) -> None:
    limit = 3

    def longer(outputs: Any, *, by: int) -> bool:
        return len(outputs) > limit + by

    assert [judged(isolated(longer, by=1), text).value for text in ("abcde", "abcd")] == [1.0, 0.0]
    assert judged(isolated(partial(longer, by=2)), "abcde").value == 0.0


def test_an_object_has_its_state_there_and_this_ones_is_left_alone(isolated: Make) -> None:
    class Counts:
        def __init__(self) -> None:
            self.seen = 10

        def __call__(self, outputs: Any) -> int:
            self.seen += 1
            return self.seen

    counts = Counts()
    one = isolated(counts)
    assert [judged(one).value for _ in range(3)] == [11.0, 12.0, 13.0]
    assert counts.seen == 10


def test_what_cannot_move_is_said_before_anything_is_judged() -> None:
    lock = threading.Lock()

    def locked(outputs: Any) -> bool:
        with lock:
            return True

    with pytest.raises(InputError, match="evaluator 'locked': timeout_s: it cannot run in a process of its own"):
        check_movable(bind(locked))
    check_movable(bind(where))


def test_several_scores_are_several(shared: Isolated) -> None:
    def three(outputs: Any) -> list[Score]:
        return [Score(value=1), Score(key="b", label="x"), Score(value=0, turn=2)]

    found = shared.judge({"outputs": (three, None)}, {})
    assert [(each.metric, each.value, each.label, each.turn) for each in found] == [
        ("mine", 1.0, None, None),
        ("b", None, "x", None),
        ("mine", 0.0, None, 2),
    ]


def test_large_answers_pass_in_both_directions(shared: Isolated) -> None:
    def twice(outputs: Any, complete: Any) -> Score:
        return Score(value=len(outputs), comment=complete(outputs + outputs))

    text = "x" * 5_000_000
    found = judged(shared, (twice, text), complete=lambda asked: asked + "y")
    assert found.value == 5e6 and found.comment == text + text + "y"


# What goes wrong in it


def test_what_it_raises_is_told_in_its_words_and_it_judges_on(shared: Isolated) -> None:
    def fussy(outputs: Any) -> Score:
        raise KeyError("no such answer")

    before = judged(shared, (where, None)).comment
    assert failed(shared, (fussy, None)) == ("raised", "KeyError: 'no such answer'")
    assert judged(shared, (where, None)).comment == before


def test_an_error_of_a_class_that_cannot_be_moved_is_told_all_the_same(shared: Isolated) -> None:
    def fussy(outputs: Any) -> bool:
        class OddError(Exception):
            def __init__(self, one: int, two: int) -> None:
                super().__init__(f"{one} and {two}")
                self.lock = threading.Lock()

        raise OddError(1, 2)

    assert failed(shared, (fussy, None)) == ("raised", "OddError: 1 and 2")


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (float("nan"), "ValueError: returned nan, wanted a finite number"),
        ({1, 2}, "TypeError: returned set, wanted a bool"),
        ([1, 2], "ValueError: returned 2 scores called 'mine'"),
    ],
    ids=str,
)
def test_what_is_no_score_is_a_bad_return(shared: Isolated, returned: Any, said: str) -> None:
    kind, text = failed(shared, (lambda outputs: returned, None))
    assert kind == "bad_return" and text.startswith(said)


def test_what_cannot_be_moved_back_is_a_bad_return_and_it_judges_on(shared: Isolated) -> None:
    def odd(outputs: Any) -> Score:
        return Score(value=1, metadata={"lock": threading.Lock()})

    before = judged(shared, (where, None)).comment
    kind, text = failed(shared, (odd, None))
    assert kind == "bad_return" and "lock" in text
    assert judged(shared, (where, None)).comment == before


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda: os._exit(3), "its process ended with 3"),
        (lambda: sys.exit(4), "its process ended with 4"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "its process ended with -9"),
    ],
    ids=["_exit", "exit", "killed"],
)
def test_one_that_ends_its_process_is_a_failed_judgement_and_another_judges_on(
    isolated: Make, how: Callable[[], None], said: str
) -> None:
    def ends(outputs: Any) -> bool:
        if outputs == "end":
            how()
        return True

    one = isolated(ends)
    assert failed(one, "end") == ("raised", said)
    assert judged(one).value == 1.0


def test_one_that_cannot_be_set_up_there_says_why(isolated: Make) -> None:
    class Fussy:
        def __setstate__(self, state: object) -> None:
            raise RuntimeError("not in this process")

        def __call__(self, outputs: Any) -> bool:
            return True

        def __getstate__(self) -> object:
            return {"a": 1}

    assert failed(isolated(Fussy())) == ("raised", "RuntimeError: not in this process")


def test_a_process_that_was_ended_while_it_waited_is_replaced(isolated: Make) -> None:
    one = isolated(where)
    before = pid_of(one)
    os.kill(before, signal.SIGKILL)
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


@pytest.mark.parametrize("how", ["sleeps", "swallows", "backtracks", "is_deaf", "runs_another"])
def test_what_takes_too_long_is_really_ended_and_another_judges_on(isolated: Make, tmp_path: Path, how: str) -> None:
    one, path = isolated(hangs, timeout_s=0.5, how=how, path=str(tmp_path / "pids")), tmp_path / "pids"
    before, began = pid_of(one), time.monotonic()
    assert failed(one, "hang") == ("too_slow", "took longer than 0.5 s, and was ended")
    assert time.monotonic() - began < 5
    processes = [int(line) for line in path.read_text().split()]
    assert processes[0] == before and len(processes) == (2 if how == "runs_another" else 1)
    assert all(is_gone(pid, 2.0) for pid in processes), "and so is what it has begun"
    assert pid_of(one) != before


def test_the_time_until_its_process_is_there_does_not_count(isolated: Make) -> None:
    assert judged(isolated(where, timeout_s=0.3)).value == 1.0


def test_each_judgement_has_the_whole_time(isolated: Make) -> None:
    def naps(outputs: Any) -> Score:
        time.sleep(0.25)
        return where(outputs)

    one = isolated(naps, timeout_s=0.6)
    assert len({pid_of(one) for _ in range(3)}) == 1


# What it asks a model


def test_what_it_asks_is_asked_here_with_all_arguments(shared: Isolated) -> None:
    def complete(*args: Any, **kwargs: Any) -> str:
        assert os.getpid() == here
        return f"{args} {kwargs}"

    here = os.getpid()
    asks = (lambda outputs, complete: complete("fine?", temperature=0), None)
    assert judged(shared, asks, complete=complete).label == "('fine?',) {'temperature': 0}"


def test_vectors_come_too(shared: Isolated) -> None:
    def second(outputs: Any, embed: Any) -> float:
        return float(embed([outputs])[0][1])

    assert judged(shared, (second, "a"), embed=lambda texts: [[0.0, 0.25] for _ in texts]).value == 0.25


def test_to_wait_for_a_model_does_not_count_and_the_time_before_and_after_does(isolated: Make) -> None:
    def complete(text: str) -> str:
        time.sleep(0.5)
        return text

    def twice(outputs: Any, complete: Any) -> str:
        complete("a")
        time.sleep(outputs)
        complete("b")
        time.sleep(outputs)
        return "done"

    one = isolated(twice, timeout_s=0.4)
    assert judged(one, 0.05, complete=complete).label == "done"
    assert failed(one, 0.3, complete=complete)[0] == "too_slow"


@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_a_call_that_failed_keeps_its_kind(shared: Isolated, kind: ErrorKind) -> None:
    """So that a provider that was too busy is asked again, and one that refused is not."""
    error = CallError(kind, f"it was {kind}", attempts=4, retry_after_s=7.0)

    def complete(*args: Any, **kwargs: Any) -> str:
        raise error

    asks = (lambda outputs, complete: str(complete("fine?")), None)
    with pytest.raises(CallError) as caught:
        judged(shared, asks, complete=complete)
    assert caught.value is error
    assert judged(shared, asks, complete=lambda text: "good").label == "good", "and it judges on"


def test_a_call_that_failed_can_be_caught_by_its_class_and_kind_as_in_this_process(shared: Isolated) -> None:
    def careful(outputs: Any, complete: Any) -> str | None:
        try:
            return str(complete("fine?"))
        except CallError as error:
            return f"{error.kind}: {error}"

    def complete(*args: Any) -> str:
        raise CallError("rate_limited", "too many")

    assert judged(shared, (careful, None), complete=complete).label == "rate_limited: too many"


def test_an_error_of_its_own_after_a_call_that_failed_is_its_own(shared: Isolated) -> None:
    def careless(outputs: Any, complete: Any) -> str:
        try:
            return str(complete("fine?"))
        except Exception as error:
            raise ValueError("no answer") from error

    def complete(*args: Any) -> str:
        raise CallError("rate_limited", "too many")

    assert failed(shared, (careless, None), complete=complete) == ("raised", "ValueError: no answer")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "rate_limited"), (401, "authentication"), (500, "server_error"), (400, "bad_request"), (0, "timeout")],
)
def test_errors_of_a_client_of_its_own_are_of_the_kind_that_they_are_in_this_process(
    shared: Isolated, status: int, kind: ErrorKind
) -> None:
    assert failed(shared, (refused, status)) == (kind, str(fault_of(error_of(status))))


def test_threads_of_its_own_may_ask_at_once_and_each_has_its_answer(shared: Isolated) -> None:
    def asks_often(outputs: Any, complete: Any) -> bool:
        with ThreadPoolExecutor(8) as threads:
            numbers = [str(number) * 3000 for number in range(40)]
            return list(threads.map(complete, numbers)) == [f"{number}!" for number in numbers]

    often = (asks_often, None)
    assert [judged(shared, often, complete=lambda text: f"{text}!").value for _ in range(2)] == [1.0, 1.0]


def test_what_cannot_be_asked_is_an_error_of_its_own_and_it_judges_on(shared: Isolated) -> None:
    def odd(outputs: Any, complete: Any) -> Any:
        return complete(threading.Lock())

    before = judged(shared, (where, None)).comment
    kind, text = failed(shared, (odd, None), complete=lambda lock: True)
    assert kind == "raised" and "lock" in text
    assert judged(shared, (where, None)).comment == before


# Many at once, and the end


def test_many_threads_at_once_share_few_processes_and_each_has_its_answer(isolated: Make) -> None:
    def slow_double(outputs: Any, complete: Any) -> Score:
        time.sleep(0.002)
        return Score(value=complete(outputs) * 2, comment=str(os.getpid()))

    one = isolated(slow_double)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda n: judged(one, n, complete=lambda asked: asked + 1), range(200)))
    assert [each.value for each in found] == [2.0 * (n + 1) for n in range(200)]
    assert len({each.comment for each in found}) <= MOST_PROCESSES


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
    from evaluators.call import bind
    from tasks.isolated import Isolated

    def judge(outputs):
        import os
        Path({pid!r}).write_text(f"{{os.getpid()}}\\n")
        if {hangs}:
            re.fullmatch(r"(a+)+b", "a" * 64)
        return True

    Isolated(bind(judge), {timeout_s}).judge({{"outputs": None}}, {{}}) if {hangs} else None
    one = Isolated(bind(judge), {timeout_s})
    one.judge({{"outputs": None}}, {{}})
    time.sleep(3600)
"""


@pytest.mark.parametrize(("hangs", "within_s"), [(False, 2.0), (True, 0.5 + AFTER + 1.0)], ids=["waiting", "hanging"])
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


# Messages


def test_a_process_with_more_files_open_than_select_can_count_has_messages_too(tmp_path: Path) -> None:
    numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as here, os.fdopen(writing, "wb") as there:
            assert reading > 1024
            messages.send(there, {"a": 1})
            assert messages.receive(here, time.monotonic() + 5) == {"a": 1}
    finally:
        for number in numbers:
            os.close(number)


def pipe() -> tuple[io.FileIO, Any]:
    reading, writing = os.pipe()
    return io.FileIO(reading), os.fdopen(writing, "wb")


def test_messages_come_whole_in_order_or_not_at_all() -> None:
    here, there = pipe()
    with here, there:
        for number in range(3):
            messages.send(there, [number] * number)
        assert [messages.receive(here) for _ in range(3)] == [[], [1], [2, 2]]
        began = time.monotonic()
        assert messages.receive(here, began + 0.05) is None, "time is up"
        assert 0.05 <= time.monotonic() - began < 1.0


def test_half_a_message_is_none() -> None:
    here, there = pipe()
    with here:
        with there:
            there.write(b"\x00" * 7 + b"\x09" + b"half")
        assert messages.receive(here, time.monotonic() + 5) is None


def test_of_what_cannot_be_moved_nothing_is_sent() -> None:
    here, there = pipe()
    with here, there:
        with pytest.raises(TypeError):
            messages.send(there, threading.Lock())
        messages.send(there, "next")
        assert messages.receive(here) == "next"
