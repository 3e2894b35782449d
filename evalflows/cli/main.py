"""The `evalflows` command. The modules of its commands are imported when they are run."""

import sysconfig
from pathlib import Path

import click

from evalflows.cli.commands import COMMANDS
from evalflows.cli.late_commands import Commands, LateCommand
from evalflows.specs import hints
from evalflows.specs.process_memory import end_quickly, return_memory, search_rarely


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="evalflows")
def cli() -> None:
    """Evaluate LLM applications: did it get better, is the difference real, may we release it?

    Results are stored in data/store, or in the folder named by EVALFLOWS_STORE.
    """


for group, commands in COMMANDS.items():
    for name, (module, short_help) in commands.items():
        cli.add_command(LateCommand(name, f"evalflows.cli.{module}", short_help, group))


def main() -> None:
    hints.program = hints.found_as(Path(sysconfig.get_path("scripts"), "evalflows"))
    end_quickly()
    search_rarely()
    return_memory()
    cli()


if __name__ == "__main__":
    main()
