"""What all tests share: optional parts of the machine are skipped by name, or required where CI must have them."""

import os
import shutil

import hypothesis
import pytest
import torch

# The same examples on every run: a change breaks a test, chance does not. Crowded machines get no deadline.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None, max_examples=50, print_blob=False)
hypothesis.settings.load_profile("suite")

# Triton chooses its interpreter when it is first imported, which torch.optim does too: so before any test.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

REQUIRED = set(filter(None, os.environ.get("HPCDL_REQUIRE", "").split(",")))


def need(part: str, present: bool, advice: str) -> None:
    """Skip the test where `part` of the machine is absent; fail where the environment's HPCDL_REQUIRE names it."""
    if present:
        return
    if part in REQUIRED:
        pytest.fail(f"{part} is required here (HPCDL_REQUIRE) and absent: {advice}")
    pytest.skip(f"{part} is absent: {advice}")


def chromium() -> str | None:
    """The program of Chromium or Chrome."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """The longest files begin first, so that on several processes none is left with one of them at the end.

    What tests/browser does in a page anyway is a long test where there is a browser. `make test` takes two labs from
    end to end, `make test-labs` the other six.
    """
    for item in items:
        if item.get_closest_marker("each_lab") and item.callspec.params["slug"] not in FIRST:
            item.add_marker("labs")
    if chromium():
        for item in items:
            if item.get_closest_marker("without_page"):
                item.add_marker("long")
    items.sort(key=lambda item: "browser" not in str(item.path) and item.path.name not in LONGEST)


FIRST = {"gradient_descent", "ddp"}  # one lab on one machine, one on four engines
LONGEST = {"test_notebooks.py", "test_selfcheck_labs.py"}


@pytest.fixture(scope="session", name="chromium")
def chromium_fixture():
    return chromium()


@pytest.fixture(scope="session", name="need")
def need_fixture():
    return need
