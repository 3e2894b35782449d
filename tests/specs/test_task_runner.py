"""Which engine runs the chunks."""

from pathlib import Path

import pytest

from evalflows.specs import permitted, running
from evalflows.specs.errors import InputError
from evalflows.specs.running import TaskRunnerSpec, check_task_runner


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "find_spec", lambda _: None)
    check_task_runner(TaskRunnerSpec())
    message = r"^task_runner: ray needs the package prefect-ray: pip install 'evalflows\[ray\]'$"
    with pytest.raises(InputError, match=message):
        check_task_runner(TaskRunnerSpec(kind="ray"))


def test_a_deployment_may_name_only_clusters_of_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has a scheduler can run code where chunks are, and where the run is."""
    monkeypatch.setattr(permitted, "_limits", None)
    given = TaskRunnerSpec(kind="dask", address="tcp://cluster:8786")
    check_task_runner(given)
    permitted.restrict(tmp_path)
    check_task_runner(TaskRunnerSpec(kind="dask", processes=2))
    message = r"^task_runner: address: got 'tcp://cluster:8786', .* allowed_clusters of \[tool.evalflows\] in "
    with pytest.raises(InputError, match=message):
        check_task_runner(given)
    (tmp_path / "pyproject.toml").write_text('[tool.evalflows]\nallowed_clusters = ["tcp://cluster:8786"]\n')
    check_task_runner(given)
