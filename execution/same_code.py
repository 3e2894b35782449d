"""A process that works on chunks of another one's experiment must have the same code."""

import socket

from evalflows.execution.prepared import prepared_experiments
from evalflows.execution.resolve import target_version
from evalflows.execution.running_experiment import RunningExperiment
from evalflows.specs.errors import InputError
from evalflows.store.records import to_json


def check_code_of_experiment(experiment: RunningExperiment) -> None:
    """Raise InputError if the target or an evaluator differs here from the run's."""
    spec, row = experiment.spec, experiment.row
    target = next(target for target in spec.targets if target.name == row.target)
    here = target_version(target, spec.connections)
    check_code(row.experiment_id, f"target {target.name!r}", row.target_version, here)
    described = to_json([*prepared_experiments.of(spec).described.values()])
    check_code(row.experiment_id, "evaluators", row.evaluators, described)


def check_code(owner: str, what: str, of_run: str, here: str) -> None:
    """Raise InputError if the version of something differs here from the run's."""
    if of_run != here:
        raise InputError(
            f"{socket.gethostname()}: the {what} of {owner} differ from those of the run, wanted the same files "
            "and packages; restart the processes of the cluster after a change"
        )
