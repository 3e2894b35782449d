"""What a score may be: within the range of its metric, and as its score config says."""

from collections.abc import Mapping

from evalflows.engine.running import RunnableEvaluator
from evalflows.evaluators.score import Judgement, number_in
from evalflows.specs.score_configs import ScoreConfigSpec


def check_score(judgement: Judgement, evaluator: RunnableEvaluator) -> Judgement:
    """Return the score, whose text is a number if its config says so. Raise ValueError if it may not be as it is."""
    judgement = _by_config(judgement, evaluator.configs)
    if judgement.config_id is not None and judgement.status == "scored":
        _check_config(judgement, evaluator.configs)
    metric = evaluator.metrics.get(judgement.metric)
    if metric and metric.range and judgement.value is not None:
        low, high = metric.range
        if not low <= judgement.value <= high:
            raise ValueError(f"{judgement.metric}: got {judgement.value:g}, wanted {low:g} to {high:g}")
    return judgement


def _by_config(judgement: Judgement, configs: Mapping[str, ScoreConfigSpec]) -> Judgement:
    """Return the score, whose text is a number if its config says that it is."""
    config = configs.get(judgement.config_id or "") if judgement.label is not None else None
    if config is None or config.data_type != "NUMERIC" or judgement.value is not None:
        return judgement
    number = number_in(judgement.label or "")
    return judgement if number is None else judgement._replace(value=number, label=None, data_type="NUMERIC")


def _check_config(judgement: Judgement, configs: Mapping[str, ScoreConfigSpec]) -> None:
    config = configs.get(judgement.config_id or "")
    if config is None:
        known = ", ".join(configs) or "none"
        raise ValueError(f"config_id {judgement.config_id!r}: wanted one of score_configs: {known}")
    config.check(judgement.metric, judgement.value, judgement.label)
