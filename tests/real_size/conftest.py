import pytest

from benchmarks.real_size import LARGE, MIDDLE


@pytest.fixture(scope="module", params=[MIDDLE, pytest.param(LARGE, marks=pytest.mark.soak)])
def examples(request: pytest.FixtureRequest) -> int:
    """The size of the store: the largest is tested before a release."""
    return int(request.param)
