"""A process that works on chunks of another one's experiment must have the same code."""

import os
import socket

from evalflows.execution.prepared import prepared_experiments
from evalflows.execution.resolve import target_version
from evalflows.execution.running_experiment import RunningExperiment
from evalflows.specs.errors import InputError
from evalflows.store.records import to_json


def check_code_of_experiment(experiment: RunningExperiment, *, in_cluster: bool = True) -> None:
    """Raise InputError if the target or an evaluator differs here from the run's.

    The error says what to do about a process of a cluster, or of the run's machine.
    """
    spec, row = experiment.spec, experiment.row
    target = next(target for target in spec.targets if target.name == row.target)
    here = target_version(target, spec.connections)
    check_code(row.experiment_id, f"target {target.name!r}", row.target_version, here, in_cluster=in_cluster)
    described = to_json([*prepared_experiments.of(spec).described.values()])
    check_code(row.experiment_id, "evaluators", row.evaluators, described, in_cluster=in_cluster)


def check_code(owner: str, what: str, of_run: str, here: str, *, in_cluster: bool = True) -> None:
    """Raise InputError if the version of something differs here from the run's."""
    if of_run != here:
        place = socket.gethostname() if in_cluster else f"process {os.getpid()} of this machine"
        remedy = (
            "the same files and packages; restart the processes of the cluster after a change"
            if in_cluster
            else "the same files; start the run again after a change, or with task_runner: threads"
        )
        raise InputError(f"{place}: {what} of {owner}: got other code than that of the run, wanted {remedy}")
