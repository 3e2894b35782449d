"""Deploy flows to Prefect: the deployments of a prefect.yaml, their work pools, and the API to register them with."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import SCHEDULE_TYPES, CronSchedule, IntervalSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_API_URL, get_current_settings, temporary_settings
from prefect.workers.process import ProcessWorker

from evalflows.prefect_server import DENIED, access_denied, server_access
from evalflows.specs.comparison import load_comparison
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import load_experiment
from evalflows.specs.frozen import dataclass
from evalflows.specs.permitted import DEPLOYED_FROM
from evalflows.specs.retention import load_retention
from evalflows.specs.traces import load_trace_evaluation
from evalflows.specs.yaml_loader import LimitedLoader

__all__ = ["comparison_spec_of", "retention_spec_of", "spec_of", "trace_evaluation_spec_of"]

OURS = "evalflows.flows."
"""What the entrypoints of our flows begin with."""


def spec_of(file: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Build step of prefect.yaml: load a spec file as `{{ spec }}` for the deployment's parameters.

    All fields are written out: the form in Prefect's UI only shows given values, and does not support shorthands.
    """
    return {"spec": load_experiment(file, changes).model_dump(mode="json")}


def comparison_spec_of(file: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Build step of prefect.yaml: load a comparison's spec file as `{{ spec }}`."""
    return {"spec": load_comparison(file, changes).model_dump(mode="json")}


def trace_evaluation_spec_of(file: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Build step of prefect.yaml: load a trace evaluation's spec file as `{{ spec }}`."""
    return {"spec": load_trace_evaluation(file, changes).model_dump(mode="json")}


def retention_spec_of(file: str) -> dict[str, Any]:
    """Build step of prefect.yaml: load a spec file of retention as `{{ spec }}`."""
    return {"spec": load_retention(file).model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class PrefectFile:
    """The deployments of our flows in a prefect.yaml. Others there are deployed by `prefect deploy`."""

    path: Path
    content: Mapping[str, Any]
    """Of the file, with these deployments only."""

    @property
    def deployments(self) -> list[str]:
        """Their names, each after that of its flow."""
        return [f"{d['entrypoint'].rpartition('.')[2]}/{d['name']}" for d in self.content["deployments"]]

    @property
    def pools(self) -> list[str]:
        """Their work pools."""
        return sorted({str(d["work_pool"]["name"]) for d in self.content["deployments"]})

    @property
    def origin(self) -> str:
        """Where they are deployed from: the machine and the folder."""
        return f"{socket.gethostname()}:{self.path.parent.resolve()}"

    def marked(self) -> dict[str, Any]:
        """Return the content in which each deployment has its origin, in the environment of its runs."""
        deployments = []
        for deployment in self.content["deployments"]:
            variables = deployment["work_pool"].get("job_variables") or {}
            environment = {**(variables.get("env") or {}), DEPLOYED_FROM: self.origin}
            pool = {**deployment["work_pool"], "job_variables": {**variables, "env": environment}}
            deployments.append({**deployment, "work_pool": pool})
        return {**self.content, "deployments": deployments}


def prefect_file(folder: Path) -> PrefectFile:
    """Read the prefect.yaml of a folder. Raise InputError if it is missing, not valid, or has no deployment of ours."""
    path = folder / "prefect.yaml"
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), LimitedLoader)
        deployments = [dict(deployment) for deployment in content["deployments"]]
        file = PrefectFile(path, {**content, "deployments": [d for d in deployments if _is_ours(d)]})
        names, _ = file.deployments, file.pools
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file, wanted one with deployments: docs/guides/deployments.md") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: wanted deployments, each with a name, an entrypoint and a work_pool with a name"
        ) from error
    if not names:
        raise InputError(
            f"{path}: has no deployment of a flow of evalflows, such as {OURS}run_experiment.run_experiment"
        )
    return file


def _is_ours(deployment: Mapping[str, Any]) -> bool:
    return str(deployment["entrypoint"]).startswith(OURS)


def api_url() -> str | None:
    """Return the configured Prefect API: PREFECT_API_URL, or that of the Prefect profile; None if there is none."""
    return get_current_settings().api.url or None


def ui_url() -> str:
    """Return the URL of Prefect's UI."""
    return get_current_settings().ui_url or ""


@contextmanager
def client_of(url: str) -> Iterator[SyncPrefectClient]:
    """Yield a client of the API at a URL. Everything else in the block uses the same API.

    Its secret is the configured one (PREFECT_API_AUTH_STRING), or that of the local server at this URL.

    Raise InputError if the API does not answer or denies access.
    """
    settings = {PREFECT_API_URL: url, PREFECT_API_REQUEST_TIMEOUT: 10.0}
    with temporary_settings(settings), server_access(), get_client(sync_client=True) as client:
        if fault := client.api_healthcheck():
            raise InputError(f"PREFECT_API_URL={url}: no Prefect API answers there: {_short(fault)}") from fault
        try:
            yield client
        except PrefectHTTPStatusError as error:
            if error.response.status_code in DENIED:
                raise access_denied(url) from error
            raise InputError(f"PREFECT_API_URL={url}: {_short(error)}") from error


def environment() -> dict[str, str]:
    """Return the environment of a command that uses the same API as the block of `client_of` around this call."""
    api = get_current_settings().api
    access = {"PREFECT_API_AUTH_STRING": api.auth_string.get_secret_value()} if api.auth_string else {}
    return {**os.environ, "PREFECT_API_URL": api.url or "", **access}


def create_pools(client: SyncPrefectClient, pools: Sequence[str]) -> None:
    """Create the work pools that do not exist yet, of type process."""
    for name in pools:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            template = ProcessWorker.get_default_base_job_template()
            pool = WorkPoolCreate(name=name, type=ProcessWorker.type, base_job_template=template)
            try:
                client.create_work_pool(pool)
            except ObjectAlreadyExists:  # another process created it meanwhile
                continue


def refuse_those_of_others(client: SyncPrefectClient, file: PrefectFile) -> None:
    """Raise InputError if deployments of these names were registered from another folder or machine."""
    for deployment in _deploy(client, file):
        origin = ((deployment.job_variables or {}).get("env") or {}).get(DEPLOYED_FROM)
        if origin is not None and origin != file.origin:
            raise InputError(
                f"{file.path}: deployment {deployment.name!r} was registered from {origin}, wanted another name and "
                "work pool here, or `evalflows deploy --replace`"
            )


def deploy(client: SyncPrefectClient, file: PrefectFile) -> list[str]:
    """Register the deployments of a prefect.yaml and create their work pools. Return a description of each."""
    create_pools(client, file.pools)
    with NamedTemporaryFile("w", prefix="prefect-", suffix=".yaml", encoding="utf-8") as marked:
        yaml.safe_dump(file.marked(), marked, allow_unicode=True, sort_keys=False)
        marked.flush()
        completed = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", marked.name],
            cwd=file.path.parent,
            env=environment() | {"COLUMNS": "1000"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,  # so that Ctrl-C reaches only this process, which waits
        )
    if completed.returncode:
        raise InputError(f"{file.path}: prefect deploy: {_cause(completed.stderr or completed.stdout)}")
    return sorted(_in_words(client, deployment) for deployment in _deploy(client, file))


def _deploy(client: SyncPrefectClient, file: PrefectFile) -> list[DeploymentResponse]:
    found = []
    for name in file.deployments:
        with suppress(ObjectNotFound):
            found.append(client.read_deployment_by_name(name))
    return found


def _in_words(client: SyncPrefectClient, deployment: DeploymentResponse) -> str:
    """Return a deployment's name and its schedules."""
    name = f"{client.read_flow(deployment.flow_id).name}/{deployment.name}"
    times = [f"{_rule(entry.schedule)}{'' if entry.active else ', paused'}" for entry in deployment.schedules]
    return f"{name} ({'; '.join(times)})" if times else name


def _rule(schedule: SCHEDULE_TYPES) -> str:
    if isinstance(schedule, CronSchedule):
        return f"{schedule.cron} {schedule.timezone or 'UTC'}"
    return f"every {schedule.interval}" if isinstance(schedule, IntervalSchedule) else "a schedule"


def _cause(text: str, limit: int = 400) -> str:
    """Return why a command failed: our own error, else the first exception in its output, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b: ", line)]
    own = [line.partition(": ")[2] for line in errors if line.startswith(f"{InputError.__module__}.")]
    return (own or errors or lines[-1:] or ["no reason given"])[0][:limit]


def _short(error: Exception) -> str:
    return re.split(r" - (?:Response|For more information)", str(error))[0] or type(error).__name__
