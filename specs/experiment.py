"""An experiment: a dataset, the targets that answer it, and the evaluators that judge the answers."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from specs.connection import ConnectionSpec
from specs.dataset import DatasetSpec
from specs.errors import InputError, first_problem
from specs.evaluator import EvaluatorSpec
from specs.target import TargetSpec


def _one_is_many(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


class ExperimentSpec(BaseModel):
    """What spec files, the flow's parameters and the form in Prefect's UI share. Each target is an experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="What the experiment is called", min_length=1)
    description: str = Field("", description="What it is for")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Whatever should be found again with it")
    tags: list[str] = Field(default_factory=list)
    dataset: DatasetSpec
    targets: list[TargetSpec] = Field(min_length=1, description="The variants under test")
    evaluators: Annotated[list[EvaluatorSpec], BeforeValidator(_one_is_many)] = Field(
        description="What judges every answer"
    )
    connections: dict[str, ConnectionSpec] = Field(
        default_factory=dict, description="Connections besides openai and local"
    )
    repetitions: int = Field(1, ge=1, description="How often each example is answered")
    max_concurrency: int | None = Field(
        None, ge=1, description="Most items in the user's own code at once, per process"
    )
    chunk_size: int | None = Field(
        None, ge=1, description="Items a Prefect task run takes; chosen by their number where left out"
    )
    chunk_retries: int = Field(
        2, ge=0, description="How often Prefect runs a chunk again for calls that may yet succeed"
    )
    chunk_retry_delay_s: float = Field(10.0, ge=0, description="Seconds before that")
    run_key: str | None = Field(
        None, description="Runs with the same key are one: a second one continues the first", min_length=1
    )
    fresh: bool = Field(
        False, description="Pay for every model call anew, even where another experiment has its answer"
    )

    @model_validator(mode="after")
    def _names_differ(self) -> "ExperimentSpec":
        for what, names in (
            ("targets", [target.name for target in self.targets]),
            ("evaluators", [evaluator.metric for evaluator in self.evaluators]),
        ):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise ValueError(f"{what}: two are called {twice[0]!r}, wanted a name of its own for each")
        return self

    def experiment_name(self, target: str) -> str:
        """The name of the experiment that a target becomes."""
        return self.name if len(self.targets) == 1 else f"{self.name}-{target}"


def load_experiment(path: str | Path) -> ExperimentSpec:
    """Read a spec file (YAML). Raises InputError, in one line, for whatever is wrong with it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that there is not is a ValueError
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: got {type(content).__name__}, wanted a mapping with name, dataset, targets, evaluators"
        )
    try:
        return ExperimentSpec.model_validate(content)
    except ValidationError as error:
        raise InputError(first_problem(error, str(path))) from error
