"""What is deployed with Prefect: the deployments of a prefect.yaml, their work pools, and the API that they go to."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName, WorkPoolFilter, WorkPoolFilterName
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import SCHEDULE_TYPES, CronSchedule, IntervalSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_API_URL, get_current_settings, temporary_settings
from prefect.workers.process import ProcessWorker

from specs.comparison import load_comparison
from specs.errors import InputError
from specs.experiment import load_experiment

ROOT = Path(__file__).parent.parent


def spec_of(file: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """A build step of prefect.yaml: a spec file's content, as `{{ spec }}` of the deployment's parameters.

    Whole, since the form in Prefect's UI fills in only what is given, and shorthands are not of the form's schema.
    """
    return {"spec": load_experiment(file, changes).model_dump(mode="json")}


def comparison_spec_of(file: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """The same of a comparison's spec file."""
    return {"spec": load_comparison(file, changes).model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class PrefectFile:
    """A prefect.yaml: which deployments it has, and whose work pools."""

    path: Path
    deployments: Sequence[str]
    pools: Sequence[str]


def prefect_file(folder: Path) -> PrefectFile:
    """The prefect.yaml of a folder, or ours where it has none. Raises InputError for one that cannot be read."""
    path = next((one for one in (folder / "prefect.yaml", ROOT / "prefect.yaml") if one.exists()), folder)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        deployments = [dict(one) for one in content["deployments"]]
        names = [str(one["name"]) for one in deployments]
        pools = sorted({str(one["work_pool"]["name"]) for one in deployments})
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: wanted deployments, each with a name and a work_pool that has a name") from error
    return PrefectFile(path, names, pools)


def api_url() -> str | None:
    """The user's own API: PREFECT_API_URL, or what their Prefect profile names."""
    return get_current_settings().api.url or None


def ui_url() -> str:
    """Where the UI of the API is."""
    return get_current_settings().ui_url or ""


def home() -> Path:
    """Prefect's own folder, where its database is."""
    return get_current_settings().home


def server_settings() -> dict[str, str]:
    """The settings that our server wants, as environment variables: those of [tool.prefect] in pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(_variables("PREFECT", tomllib.load(file)["tool"]["prefect"]))


@contextmanager
def client_of(url: str) -> Iterator[SyncPrefectClient]:
    """A client of the API at a URL, which also all else in this block uses.

    Raises InputError where that API does not answer, or does not let us in.
    """
    settings = {PREFECT_API_URL: url, PREFECT_API_REQUEST_TIMEOUT: 10.0}
    with temporary_settings(settings), get_client(sync_client=True) as client:
        if fault := client.api_healthcheck():
            raise InputError(f"PREFECT_API_URL={url}: no Prefect API answers there: {_short(fault)}") from fault
        try:
            yield client
        except PrefectHTTPStatusError as error:
            raise InputError(f"PREFECT_API_URL={url}: {_short(error)}") from error


def create_pools(client: SyncPrefectClient, pools: Sequence[str]) -> None:
    """Create the work pools that do not exist, for runs in processes of a worker."""
    for name in pools:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            template = ProcessWorker.get_default_base_job_template()
            pool = WorkPoolCreate(name=name, type=ProcessWorker.type, base_job_template=template)
            try:
                client.create_work_pool(pool)
            except ObjectAlreadyExists:  # another one was quicker
                continue


def deploy(client: SyncPrefectClient, file: PrefectFile) -> list[str]:
    """Register the deployments of a prefect.yaml, and the work pools they want. Returns them in words."""
    create_pools(client, file.pools)
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(file.path)]
    environment = os.environ | {"PREFECT_API_URL": str(client.api_url), "COLUMNS": "1000"}
    done = subprocess.run(
        command,
        cwd=file.path.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,  # Ctrl-C is for us, who wait for it
    )
    if done.returncode:
        raise InputError(f"{file.path}: prefect deploy: {_cause(done.stderr or done.stdout)}")
    return sorted(_in_words(client, one) for one in _deployed(client, file))


def _deployed(client: SyncPrefectClient, file: PrefectFile) -> list[DeploymentResponse]:
    return client.read_deployments(
        deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=list(file.deployments))),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=list(file.pools))),
    )


def _in_words(client: SyncPrefectClient, deployment: DeploymentResponse) -> str:
    """A deployment's name, and when it runs."""
    name = f"{client.read_flow(deployment.flow_id).name}/{deployment.name}"
    times = [f"{_rule(one.schedule)}{'' if one.active else ', paused'}" for one in deployment.schedules]
    return f"{name} ({'; '.join(times)})" if times else name


def _rule(schedule: SCHEDULE_TYPES) -> str:
    if isinstance(schedule, CronSchedule):
        return f"{schedule.cron} {schedule.timezone or 'UTC'}"
    return f"every {schedule.interval}" if isinstance(schedule, IntervalSchedule) else "a schedule"


def _variables(prefix: str, settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        variable = f"{prefix}_{name}".upper()
        if isinstance(value, dict):
            yield from _variables(variable, value)
        else:
            yield variable, str(value)


def _cause(text: str, limit: int = 400) -> str:
    """Why a command failed: our own error, else the exception that it wrote first, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b: ", line)]
    ours = [line.partition(": ")[2] for line in errors if line.startswith(f"{InputError.__module__}.")]
    return (ours or errors or lines[-1:] or ["no reason given"])[0][:limit]


def _short(error: Exception) -> str:
    return re.split(r" - (?:Response|For more information)", str(error))[0] or type(error).__name__
