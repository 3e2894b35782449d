"""The `evalflows` command. The modules of its commands are imported when they are run."""

import os
import sysconfig
from pathlib import Path

import click

from evalflows.cli.commands import COMMANDS
from evalflows.cli.late_commands import Commands, LateCommand
from evalflows.specs import hints
from evalflows.specs.process_memory import end_quickly, return_memory, with_one_stack

SHORT_WAIT = "20"
"""For how long numpy's threads wait busily for more work, when it loads and after each product: 2 ** 20 ticks of the
processor, 0.4 ms. By default it is 2 ** 26, which takes as much of its time as loading numpy."""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="evalflows")
def cli() -> None:
    """Evaluate LLM applications: did it get better, is the difference real, may we release it?

    Results are stored in data/store, or in the folder named by EVALFLOWS_STORE.
    """


for group, commands in COMMANDS.items():
    for name, (module, short_help) in commands.items():
        cli.add_command(LateCommand(name, f"evalflows.cli.{module}", short_help, group))


@with_one_stack
def main() -> None:
    hints.program = hints.found_as(Path(sysconfig.get_path("scripts"), "evalflows"))
    end_quickly()
    return_memory()
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", SHORT_WAIT)
    cli()


if __name__ == "__main__":
    main()
