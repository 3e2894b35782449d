"""The table of commands. A new one is a function in a file beside this, and a line here."""

COMMANDS = {
    "Run": {
        "run": ("run:run", "Run the experiment of a SPEC file."),
        "try": ("trying:try_out", "Try a prompt on an experiment, or an agent on one example."),
        "resume": ("run:resume", "Resume an interrupted experiment or comparison."),
        "cancel": ("batches:cancel", "Cancel the batches of model calls of a run."),
        "plan": ("plan:plan", "Estimate the cost and the examples that a SPEC needs."),
    },
    "Look": {
        "ls": ("ls:ls", "List experiments, decisions and comparisons."),
        "show": ("run:show", "Show the results of an experiment or a comparison."),
        "diff": ("diff:diff", "Compare stored experiments, example by example."),
        "flaky": ("flaky:flaky", "List the examples that flip under unchanged versions."),
        "best": ("best:best", "Find the best of many variants, corrected for the selection."),
        "dashboard": ("serve:dashboard", "Serve the results as pages in a browser."),
        "report": ("report:report", "Write results as one file to share."),
        "sql": ("store:sql", "Query the store with SQL."),
    },
    "Decide": {
        "gate": ("gates:gate", "Run a SPEC, compare with the baseline, decide its gates."),
        "decide": ("decide:decide", "Decide on results of any harness."),
        "verify": ("verify:verify", "Verify the evidence of a decision, without a store."),
        "explain": ("explain:explain", "Explain a decision, or decide again."),
        "baseline": ("baselines:baseline", "Approve and list baselines."),
        "backtest": ("backtest:backtest", "Try gates on all past pairs of experiments."),
        "robustness": ("robustness:robustness", "Try other weights of a composite."),
        "calibrate": ("calibrate:calibrate", "Find a composite's weights from ranked cases."),
    },
    "Judge": {
        "evaluators": ("evaluators:evaluators", "List, describe and try evaluators."),
        "judge": ("judge:judge", "Judge stored answers again with another judge."),
        "compare": ("compare:compare", "Compare answers pair by pair, or rate by votes."),
        "labels": ("labels:labels", "Import human labels, validate judges with them."),
        "modes": ("modes:modes", "Find, show and close failure modes."),
    },
    "Production": {
        "receive": ("serve:receive", "Receive traces over HTTP (OpenTelemetry)."),
        "traces": ("traces:traces", "Add, list and show traces."),
        "evaluate-traces": ("evaluate_traces:evaluate_traces", "Judge new traces."),
        "windows": ("windows:windows", "Show metrics by hour or day, and by slice."),
        "alerts": ("alerts:alerts", "List, show and acknowledge incidents."),
    },
    "Data": {
        "dataset": ("dataset:dataset", "Add, list, show and compare datasets."),
        "check": ("check:check", "Check stored outputs and scores against expectations."),
        "export": ("store:export", "Export to PostgreSQL, DuckDB, Parquet or CSV."),
    },
    "Store": {
        "doctor": ("store:doctor", "Find damaged and foreign files, and say what to do."),
        "compact": ("store:compact", "Merge small files, for faster queries."),
        "forget": ("erase:forget", "Erase the texts of a person, an example or a trace."),
        "retain": ("erase:retain", "Erase old texts, remove old experiments."),
    },
    "Set up": {
        "init": ("init:init", "Write a small example that runs as is."),
        "mcp": ("mcp:mcp", "Serve the store as tools to a coding agent."),
        "schema": ("schema:schema", "Print JSON Schemas of specs and of documents."),
        "connections": ("connections:connections", "List and test the connections to models."),
        "up": ("server:up", "Start a worker, register the deployments of this folder."),
        "deploy": ("server:deploy", "Register the deployments of this folder."),
        "status": ("server:status", "Show the local Prefect server."),
        "down": ("server:down", "Stop the local Prefect server."),
    },
}
"""Where each command is, below evalflows.cli, and what it does in one line; by group, the most used first."""
