"""The table of commands. A new one is a function in a file beside this, and a line here."""

COMMANDS = {
    "Run": {
        "run": ("run:run", "Run the experiment of a SPEC file."),
        "try": ("trying:try_prompt", "Try a prompt in place of an experiment's own."),
        "resume": ("run:resume", "Resume an interrupted experiment or comparison."),
        "plan": ("gates:plan", "Estimate the cost and the examples that a SPEC needs."),
    },
    "Look": {
        "ls": ("ls:ls", "List experiments, decisions and comparisons."),
        "show": ("run:show", "Show the results of an experiment or a comparison."),
        "diff": ("diff:diff", "Compare stored experiments, example by example."),
        "best": ("best:best", "Find the best of many variants, corrected for the search."),
        "dashboard": ("serve:dashboard", "Serve the results as pages in a browser."),
        "report": ("run:report", "Write results as one file that can be sent."),
        "sql": ("store:sql", "Query the store with SQL."),
    },
    "Decide": {
        "gate": ("gates:gate", "Run a SPEC, compare with the baseline, decide its gates."),
        "explain": ("gates:explain", "Explain a decision, or make it again."),
        "baseline": ("gates:baseline", "Approve and list baselines."),
        "backtest": ("gates:backtest", "Try gates on all past pairs of experiments."),
        "robustness": ("robustness:robustness", "Try other weights of a composite."),
        "calibrate": ("robustness:calibrate", "Find a composite's weights from ranked cases."),
    },
    "Judge": {
        "evaluators": ("evaluators:evaluators", "List, describe and try evaluators."),
        "compare": ("compare:compare", "Compare answers pair by pair, or rate by votes."),
        "labels": ("labels:labels", "Import human labels, validate judges with them."),
        "modes": ("modes:modes", "Find, show and close failure modes."),
    },
    "Production": {
        "receive": ("serve:receive", "Receive traces over HTTP (OpenTelemetry)."),
        "traces": ("production:traces", "Add, list and show traces."),
        "evaluate-traces": ("production:evaluate_traces", "Judge the traces that are new."),
        "windows": ("production:windows", "Show metrics by hour or day, and by slice."),
        "alerts": ("production:alerts", "List, show and acknowledge incidents."),
    },
    "Data": {
        "dataset": ("dataset:dataset", "Add, list, show and compare datasets."),
        "check": ("run:check", "Check stored outputs and scores against expectations."),
        "export": ("store:export", "Export to PostgreSQL, DuckDB, Parquet or CSV."),
    },
    "Store": {
        "doctor": ("store:doctor", "Find damaged and foreign files, and say what to do."),
        "compact": ("store:compact", "Pack small files into few, for faster queries."),
        "forget": ("erase:forget", "Erase the texts of a person, an example or a trace."),
        "retain": ("erase:retain", "Erase or remove what is too old."),
    },
    "Set up": {
        "init": ("init:init", "Write a small example that runs as it is."),
        "mcp": ("mcp:mcp", "Serve the store as tools to a coding agent."),
        "schema": ("schema:schema", "Print JSON Schemas of specs and of documents."),
        "connections": ("evaluators:connections", "List and test the connections to models."),
        "up": ("serve:up", "Start a worker, register the deployments of this folder."),
        "deploy": ("serve:deploy", "Register the deployments of this folder."),
        "status": ("serve:status", "Show the local Prefect server."),
        "down": ("serve:down", "Stop the local Prefect server."),
    },
}
"""Where each command is, below evalflows.cli, and what it does in one line; by group, the most used first."""
