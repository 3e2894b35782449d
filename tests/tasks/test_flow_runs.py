"""What Prefect shows of a flow run."""

import pytest

from evalflows.tasks.flow_runs import _is_random


@pytest.mark.parametrize(
    ("name", "is_random"),
    [
        ("", True),
        ("brave-beetle", True),
        ("alpha3-cancri-ring", True),
        ("omega-canis-majoris", True),
        ("new-prompt", False),
        ("hotfix 12", False),
        ("alpha", False),
        ("release-2.4", False),
    ],
)
def test_a_typed_name_is_told_from_one_of_prefect(name: str, is_random: bool) -> None:
    assert _is_random(name) == is_random
