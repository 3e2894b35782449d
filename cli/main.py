"""The `evalflows` command: a table of its commands, whose modules are imported when they are run."""

import click

from evalflows.cli.commands import Commands, LateCommand
from evalflows.execution.rare_collection import search_rarely

COMMANDS = {
    "init": (
        "init:init",
        "Start the evaluations of the repository in the current folder: write a small example that runs as it is.",
    ),
    "run": ("experiments:run", "Run the experiment described by a SPEC file (YAML)."),
    "resume": ("experiments:resume", "Resume an interrupted EXPERIMENT or comparison."),
    "show": (
        "experiments:show",
        "Show the results of an EXPERIMENT or a comparison, given by id, id prefix, name or run group.",
    ),
    "check": (
        "check:check",
        "Check the outputs and scores of finished EXPERIMENTS with Great Expectations; by default, of the newest run.",
    ),
    "diff": ("diff:diff", "Compare stored experiments with a BASELINE, on the metrics that they share."),
    "report": (
        "report:report",
        "Write a report of an EXPERIMENT, a DECISION or a COMPARISON as one file that can be sent.",
    ),
    "ls": ("ls:ls", "List experiments with the decisions of their gates, and comparisons, newest first."),
    "dashboard": (
        "dashboard:dashboard",
        "Serve the dashboard: pages about experiments, comparisons, decisions, judges and production, and review.",
    ),
    "sql": ("sql:sql", "Run a SQL QUERY on the store."),
    "dataset": ("dataset:dataset", "Add, list, show and compare datasets."),
    "export": ("export:export", "Export data from the store."),
    "connections": ("connections:connections", "List the connections that a spec can name, or test them with --test."),
    "evaluators": ("evaluators:evaluators", "List the evaluators that have a short name, or describe evaluator NAME."),
    "compact": (
        "compact:compact",
        "Pack the small files of finished experiments into few, for faster queries.",
    ),
    "forget": (
        "forget:forget",
        "Erase the texts of examples, traces or a person everywhere in the store, and keep the figures.",
    ),
    "retain": (
        "retain:retain",
        "Erase texts and remove experiments that are older than the rules of a SPEC file (YAML) allow.",
    ),
    "doctor": ("doctor:doctor", "Read every file of the store, and say what is damaged and what to do."),
    "compare": (
        "comparison:compare",
        "Compare the answers of two or more EXPERIMENTS pair by pair, or rate systems by a file of votes.",
    ),
    "evaluate-traces": (
        "trace_evaluations:evaluate_traces",
        "Judge the production traces that are new since the last start, as a SPEC file (YAML) describes.",
    ),
    "traces": ("traces:traces", "Add, list and show the traces of production."),
    "receive": ("receive:receive", "Receive production traces over HTTP, from OpenTelemetry's exporters."),
    "alerts": ("alerts:alerts", "List, show and acknowledge the incidents that watch rules found in production."),
    "windows": ("windows:windows", "Show the metrics of a trace EVALUATION by hour or day, and by slice."),
    "robustness": (
        "robustness:robustness",
        "Check whether other composite weights would make another system the winner.",
    ),
    "labels": ("labels:labels", "Import human labels, and validate judges against them."),
    "gate": (
        "gate:gate",
        "Run the experiment of a SPEC file, compare it with the baseline, and decide the file's gates.",
    ),
    "baseline": ("gate:baseline", "Approve and list baselines: the experiments that gates compare candidates with."),
    "explain": (
        "gate:explain",
        "Explain a DECISION: its rules and evidence, and the SQL, files and settings that reproduce it.",
    ),
    "plan": ("plan:plan", "Estimate what a run of a SPEC file would cost, and how many examples it needs."),
    "backtest": ("backtest:backtest", "Backtest the gates of a SPEC file on all past pairs of experiments."),
    "up": (
        "up:up",
        "Start a worker in this folder, and register the deployments of prefect.yaml with the local Prefect server.",
    ),
    "status": ("server:status", "Show the local Prefect server that runs and notebooks share."),
    "down": ("server:down", "Stop the local Prefect server."),
    "deploy": (
        "up:deploy",
        "Register the deployments of this folder's prefect.yaml with the local server, or the API at PREFECT_API_URL.",
    ),
}
"""Where each command is, below evalflows.cli, and the first sentence of its help."""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="evalflows")
def cli() -> None:
    """Evaluate LLM applications: did it get better, is the difference real, may we release it?

    Results are stored in data/store, or in the folder named by EVALFLOWS_STORE.
    """


for name, (place, short_help) in COMMANDS.items():
    cli.add_command(LateCommand(name, f"evalflows.cli.{place}", short_help))


def main() -> None:
    search_rarely()
    cli()


if __name__ == "__main__":
    main()
