"""Every command that a message proposes to run. One function per kind of hint; a test runs each kind.

Words in capitals, such as SPEC or FILE, stand for what the person has to fill in.
"""

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from evalflows.specs.escaping import one_line
from evalflows.specs.frozen import dataclass

program = "evalflows"
"""How commands begin. The command line sets what its shell finds."""


def found_as(path: Path) -> str:
    """Return how a shell in this folder finds a program: by its name if it is on the PATH, else by its path."""
    found = shutil.which(path.name)
    if not path.exists() or (found and Path(found).resolve() == path.resolve()):
        return path.name
    here = os.path.relpath(path)
    return str(path) if here.startswith("..") else here if os.sep in here else f"./{here}"


@dataclass(frozen=True, slots=True)
class Hint:
    """A command of ours: its arguments, and why to run it, if that is not plain."""

    arguments: tuple[str, ...]
    because: str | None = None
    for_person: bool = False  # whether a person has to decide it, and no program

    @property
    def command(self) -> str:
        """The command as it is typed in a shell, on one line."""
        return one_line(" ".join(map(quoted, (program, *self.arguments))))

    @property
    def code(self) -> str:
        """The command in backticks, within a sentence."""
        return f"`{self.command}`"

    def __str__(self) -> str:
        return f"{self.command}  # {self.because}" if self.because else self.command


def quoted(argument: str) -> str:
    """Quote an argument for a shell. SQL's single quotes stay readable, in double quotes."""
    if "'" in argument and "!" not in argument:
        return '"' + re.sub(r'[\\"$`]', r"\\\g<0>", argument) + '"'
    return shlex.quote(argument)


def resume(identity: str, changes: Sequence[str] = (), because: str | None = None) -> Hint:
    """Continue an experiment or a comparison; `changes` are those of `--set`."""
    return Hint(("resume", identity, *(word for change in changes for word in ("--set", change))), because)


def list_runs() -> Hint:
    """List what is in the store."""
    return Hint(("ls",))


def show(reference: str) -> Hint:
    """Show an experiment, a comparison, a plan or a backtest."""
    return Hint(("show", reference))


def watch(identity: str) -> Hint:
    """Look again at what is running."""
    return Hint(("show", identity), "it is running")


def show_all(identity: str) -> Hint:
    """Show all results."""
    return Hint(("show", identity, "--all"))


def show_worst(reference: str, metrics: Sequence[str], against: str | None = None) -> Hint:
    """List all examples that got worse by some metrics."""
    named = [word for metric in dict.fromkeys(metrics) for word in ("--worst", metric)]
    return Hint(("show", reference, *named, *(("--against", against) if against else ())))


def diff(
    baseline: str, *candidates: str, metric: str | None = None, where: str | None = None, slices: bool = False
) -> Hint:
    """Compare stored experiments, example by example."""
    chosen = [*(("--metric", metric) if metric else ()), *(("--where", where) if where else ())]
    return Hint(("diff", baseline, *candidates, *chosen, *(("--slices",) if slices else ())))


def judge_again(*references: str) -> Hint:
    """Judge experiments or a comparison again."""
    return Hint(("judge", *references))


def judged_again(reference: str) -> Hint:
    """Show what was judged again beside what it was before."""
    return Hint(("judge", reference, "--stored"))


def explain(decision: str, *, again: bool = False) -> Hint:
    """Explain a decision, and make it again from the store."""
    return Hint(("explain", decision, *(("--again",) if again else ())))


def plan(spec: str) -> Hint:
    """Estimate how many examples a spec needs; given are its path, or an experiment of it."""
    return Hint(("plan", spec), "how many examples are needed")


def approve(experiment: str) -> Hint:
    """Approve an experiment as the baseline of its name."""
    return Hint(("baseline", "approve", experiment), for_person=True)


def approve_as(name: str, experiment: str = "EXPERIMENT") -> Hint:
    """Approve an experiment as the baseline of a name."""
    return Hint(("baseline", "approve", experiment, "--name", name), for_person=True)


def approve_signed(name: str, experiment: str) -> Hint:
    """Approve an experiment as the baseline of a name, signed."""
    return Hint(("baseline", "approve", experiment, "--name", name, "--sign", "KEY"), for_person=True)


def approve_some() -> Hint:
    """Approve some experiment as the baseline of its name."""
    return Hint(("baseline", "approve", "EXPERIMENT"), for_person=True)


def sql(query: str) -> Hint:
    """Query the store."""
    return Hint(("sql", query))


def list_views() -> Hint:
    """List the views that can be queried."""
    return Hint(("sql",))


def dashboard() -> Hint:
    """Serve the results as pages."""
    return Hint(("dashboard",))


def doctor() -> Hint:
    """Say what to do about damaged files."""
    return Hint(("doctor",))


def finish_erasure() -> Hint:
    """Finish erasures that were interrupted."""
    return Hint(("forget", "--finish"))


def stop_server() -> Hint:
    """Stop the local Prefect server."""
    return Hint(("down",))


def server_status() -> Hint:
    """Show the local Prefect server, and its secret."""
    return Hint(("status",))


def receive() -> Hint:
    """Store the spans that an earlier receiver has accepted."""
    return Hint(("receive",))


def run() -> Hint:
    """Run a spec."""
    return Hint(("run", "SPEC"))


def add_dataset(file: str = "FILE") -> Hint:
    """Add a dataset."""
    return Hint(("dataset", "add", file))


def import_labels() -> Hint:
    """Import labels of people."""
    return Hint(("labels", "import", "FILE"))


def label_next(experiment: str, metric: str, people: str, n: int) -> Hint:
    """Choose answers at random for people to label; `people` is the name of their metric."""
    of = (experiment, metric, *(("--people", people) if people != metric else ()))
    return Hint(("labels", "next", *of, "--order", "random", "--n", str(n), "--out", "to_label.csv"))


def add_traces() -> Hint:
    """Add traces."""
    return Hint(("traces", "add", "FILE"))


def list_traces() -> Hint:
    """List the traces."""
    return Hint(("traces", "ls"))


def list_alerts() -> Hint:
    """List the incidents."""
    return Hint(("alerts", "ls"))


def list_all_alerts() -> Hint:
    """List the incidents, those that are over too."""
    return Hint(("alerts", "ls", "--all"))


def acknowledge(incident: str) -> Hint:
    """Acknowledge an incident."""
    return Hint(("alerts", "ack", incident))


def gate(spec: str) -> Hint:
    """Decide the gates of a spec on the final examples."""
    return Hint(("gate", spec), "on the final examples")


def gate_against(baseline: str) -> Hint:
    """Gate a spec against another baseline than its own."""
    return Hint(("gate", "SPEC", "--baseline", baseline))


def decide(approved: str) -> Hint:
    """Decide on a file of results against an approved baseline."""
    return Hint(("decide", f"approved:{approved}", "CANDIDATE", "--metric", "NAME=MARGIN"))


def windows(evaluation: str) -> Hint:
    """Show the metrics of a trace evaluation over time."""
    return Hint(("windows", evaluation))


def dataset_from_traces(where: str | None, since: str | None) -> Hint:
    """Make a dataset of some traces."""
    given = [(option, value) for option, value in (("--where", where), ("--since", since)) if value]
    return Hint(("dataset", "from-traces", "--name", "NAME", *(word for pair in given for word in pair)))
