"""What all tests share: optional parts of the machine are skipped by name, or required where CI must have them."""

import os

import hypothesis
import pytest

# The same examples on every run: a change breaks a test, chance does not. Crowded machines get no deadline.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None, max_examples=50, print_blob=False)
hypothesis.settings.load_profile("suite")

REQUIRED = set(filter(None, os.environ.get("HPCDL_REQUIRE", "").split(",")))


def need(part: str, present: bool, advice: str) -> None:
    """Skip the test where `part` of the machine is absent; fail where the environment's HPCDL_REQUIRE names it."""
    if present:
        return
    if part in REQUIRED:
        pytest.fail(f"{part} is required here (HPCDL_REQUIRE) and absent: {advice}")
    pytest.skip(f"{part} is absent: {advice}")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    """For runs on several processes (`-n 2`): the tests of a file stay together, and so do all that need the browser.

    The longest groups begin first, so that no process is left with one of them at the end.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
    items.sort(key=lambda item: LONGEST.index(group_of(item)) if group_of(item) in LONGEST else len(LONGEST))


def group_of(item) -> str:
    return "browser" if item.get_closest_marker("browser") else str(item.path.relative_to(item.config.rootpath))


LONGEST = ["browser", "tests/labs/test_notebooks.py", "tests/autograder/test_selfcheck_labs.py"]


@pytest.fixture(scope="session", name="need")
def need_fixture():
    return need
