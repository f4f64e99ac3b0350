"""Whatever dies, breaks or fills up: a run goes on, its counters are exact, nothing is paid twice, no file is torn.

pytest tests/chaos                      the schedules of CI
pytest tests/chaos --schedules=200      those of seeds 0 to 199
pytest tests/chaos --schedules=17:18    seed 17 alone
"""

from multiprocessing import forkserver

import pytest

from tests.chaos.schedules import draw
from tests.chaos.story import Story, small_disk
from tests.chaos.wire import Outside
from tests.chaos.works import Work

pytestmark = pytest.mark.slow
REFERENCES = {}


def pytest_generate_tests(metafunc):
    first, _, end = metafunc.config.getoption("--schedules").rpartition(":")
    seeds = range(int(first or 0), int(end))
    metafunc.parametrize("seed", seeds, ids=[f"{seed} {draw(seed).work}" for seed in seeds])


@pytest.fixture(scope="module", autouse=True)
def forked():
    """The process that commands are forked from ends with this module."""
    yield
    forkserver._forkserver._stop()


@pytest.fixture
def outside():
    made = Outside()
    yield made
    made.close()


def reference(work, folder):
    """What the work does undisturbed; found out once."""
    if work not in REFERENCES:
        outside = Outside()
        (folder / "disk").mkdir(parents=True)
        story = Story(Work(work, folder / "disk", outside), outside, folder)
        try:
            REFERENCES[work] = story.undisturbed()
        finally:
            story.close()
            outside.close()
    return REFERENCES[work]


def test_nothing_is_lost(seed, outside, tmp_path):
    schedule = draw(seed)
    undisturbed = reference(schedule.work, tmp_path / "undisturbed")
    folder = tmp_path / "s"
    with small_disk(folder / "disk") as real:
        story = Story(Work(schedule.work, folder / "disk", outside), outside, folder, real_disk=real)
        try:
            wrong = story.tell(schedule, undisturbed)
        finally:
            story.close()
    print(f"\n{schedule}\n  {'; '.join(story.told)}")
    assert not wrong, "\n".join([str(schedule), "; ".join(story.told), *wrong])
