"""A Ctrl-C or SIGTERM that falls where Python drops it still ends the run."""

import os
import signal
import time
from contextlib import suppress

import pytest
from click.testing import CliRunner

from evalflows.cli import late_commands, running
from evalflows.cli.main import cli
from evalflows.engine.interrupts import interrupts_noted, raise_if_pressed


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)  # the handler runs at the next step of this thread


class Finalized:
    def __del__(self) -> None:
        press()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_dropped_in_a_finalizer_it_is_raised_later() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_noted():
        one = Finalized()
        del one  # Python prints the exception, and goes on
        raise_if_pressed()


def test_caught_by_a_library_it_is_raised_at_the_end_of_the_block() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), interrupts_noted():
        with suppress(KeyboardInterrupt):
            press()
        reached = True
    assert reached


def test_without_an_interrupt_nothing_is_raised_and_the_handler_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts_noted():
        assert signal.getsignal(signal.SIGINT) is not before
        raise_if_pressed()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_records_signals_from_the_start(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt, match="nothing is left to resume"), running.prepare_runs(False):
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            time.sleep(0.1)
        with interrupts_noted():
            raise AssertionError("a call would be paid")
    raise_if_pressed()


def test_while_a_commands_module_loads_it_ends_with_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with 1, as a gate that fails does."""
    monkeypatch.setattr(late_commands, "import_module", lambda _: press())
    done = CliRunner().invoke(cli, ["explain", "release"])
    assert (done.exit_code, done.stderr.strip()) == (late_commands.INTERRUPTED, "evalflows: stopped")
