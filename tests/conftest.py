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
    """Each tier gets its labs, as the marker `each_lab` says; the longest files begin first.

    What tests/browser does in a page anyway is a long test where there is a browser.
    """
    for item in items:
        slug = item.callspec.params.get("slug") if hasattr(item, "callspec") else None
        each = item.get_closest_marker("each_lab")
        if each and slug not in each.args:
            item.add_marker("labs")
            if item.get_closest_marker("without_page") and chromium():
                item.add_marker("long")
    items.sort(key=lambda item: "browser" not in str(item.path) and item.path.name not in LONGEST)


LONGEST = {"test_notebooks.py", "test_selfcheck_labs.py"}


@pytest.fixture(scope="session", name="chromium")
def chromium_fixture():
    return chromium()


@pytest.fixture(scope="session", name="need")
def need_fixture():
    return need
