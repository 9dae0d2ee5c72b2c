"""What all tests share: optional parts of the machine are skipped by name, or required where CI must have them."""

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import hypothesis
import psutil
import pytest
import torch
from jupyter_client.connect import LocalPortCache

from hpcdl.cluster.ports import HeldPorts
from hpcdl.lazy import hide_slow_imports
from tests import slurm_daemons

ROOT = Path(__file__).parents[1]
# The same examples on every run: a change breaks a test, chance does not. Crowded machines get no deadline.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None, max_examples=50, print_blob=False)
hypothesis.settings.load_profile("suite")

# Triton chooses its interpreter when it is first imported, which torch.optim does too: so before any test.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Kernels of tests store no points next to the labs, ask for no guesses unless a test wants them, and have no pool of
# threads, which would wait for cores that other tests use: a test of several threads says how many.
os.environ |= {"HPCDL_POINTS": "", "HPCDL_GUESSES": "off", "OMP_NUM_THREADS": "1"}
torch.set_num_threads(1)
hide_slow_imports()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
HELD = HeldPorts()  # ports that no other test takes before a server, or a kernel, listens on them
LocalPortCache.find_available_port = lambda self, ip: HELD.port()
LocalPortCache.return_port = lambda self, port: HELD.release(port)
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


chromium_fixture = pytest.fixture(scope="session", name="chromium")(chromium)
need_fixture = pytest.fixture(scope="session", name="need")(lambda: need)


@pytest.fixture(scope="session", autouse=True)
def held_port():
    """A function that returns a free port, which no other program is given before a server listens on it."""
    with HELD:
        yield HELD.port


@pytest.fixture(autouse=True)
def nothing_is_unsolved():
    """No test knows which exercises another one found wrong: cells that build on them would say so."""
    yield
    if points := sys.modules.get("hpcdl.points"):
        points.unsolved.clear()
        points.solved.clear()


# -- tiers, and one lab alone -----------------------------------------------------------------------------------------


def pytest_addoption(parser):
    parser.addoption("--lab", help="only the tests of this lab, in depth: its number or its slug")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Each tier gets its labs, as `each_lab` says, and its cases, as `thinned` does; the longest files begin first.

    What tests/browser does in a page anyway is a long test where there is a browser.
    """
    cases = Counter()  # of each function so far
    for item in items:
        if thinned := item.get_closest_marker("thinned"):
            function = item.nodeid.partition("[")[0]
            if cases[function] % thinned.args[0]:
                item.add_marker("labs")
            if cases[function] % thinned.args[-1] and len(thinned.args) > 1:
                item.add_marker("long")
            cases[function] += 1
        each = item.get_closest_marker("each_lab")
        if each and slug_of(item) not in each.args:
            item.add_marker(each.kwargs.get("others", "labs"))
            first, step = each.kwargs.get("turn", (0, 1))
            has_its_turn = config.getoption("--lab") or int(lab_of(slug_of(item))[0]) % step == first
            if (item.get_closest_marker("without_page") and chromium()) or not has_its_turn:
                item.add_marker("long")
    if lab := config.getoption("--lab"):
        _, slug = lab_of(lab)
        config.hook.pytest_deselected(items=[item for item in items if not of_lab(item, slug)])
        items[:] = [item for item in items if of_lab(item, slug)]
    items.sort(key=lambda item: "browser" not in str(item.path) and item.path.name not in LONGEST)


LONGEST = {"test_notebooks.py", "test_selfcheck_labs.py"}


def slug_of(item) -> str | None:
    """The lab that a test was parametrized with."""
    return item.callspec.params.get("slug") if hasattr(item, "callspec") else None


def lab_of(name: str) -> tuple[str, str]:
    """The number and the slug of a lab that is given by one of them: ("07", "ddp") for "7", "07" and "ddp"."""
    labs = [path.stem.split("_", 1) for path in sorted((ROOT / "labs" / "source").glob("[0-9][0-9]_*.py"))]
    for number, slug in labs:
        if name.zfill(2) == number or name == slug:
            return number, slug
    raise pytest.UsageError(f"there is no lab {name!r}; the labs are {', '.join(map('_'.join, labs))}")


ABOUT_LABS = {"autograder", "browser", "labs", "pictures"}  # folders in which a slug in a file's name means the lab


def of_lab(item, slug: str) -> bool:
    """Whether a test is about this lab: parametrized with it, marked `labs(slug)`, or in a file that is named after it.

    A file of the library, as tests/hpcdl/cost/test_collectives.py, is about what the lab is about, not about the lab.
    """
    if item.get_closest_marker("each_lab"):
        return slug_of(item) == slug
    marker = item.get_closest_marker("labs")
    named = re.search(rf"_{slug}(_|$)", item.path.stem)
    if marker and marker.args:
        return slug in marker.args
    return bool(named and (marker or ABOUT_LABS & set(item.path.parts)))


# -- nothing is left behind -------------------------------------------------------------------------------------------

SHARED_MEMORY = Path("/dev/shm")
BEGAN = time.time()
SETTLED = 2.0  # seconds after which no process is about to map a file that none has mapped


def left_in_shared_memory() -> list[Path]:
    """The files that ranks made since this session began, this user's, and that no living process has mapped."""
    made = [path for pattern in ("mpich*", "hpcdl*", "torch_*") for path in SHARED_MEMORY.glob(pattern)]
    made = [path for path in made if path.stat().st_uid == os.getuid() and path.stat().st_ctime >= BEGAN]
    return sorted(set(made) - mapped()) if made else []


def mapped() -> set[Path]:
    """What living processes have mapped from shared memory, as far as this user may see."""
    found = set()
    for process in psutil.process_iter():
        try:
            maps = Path(f"/proc/{process.pid}/maps").read_text()
        except OSError:  # it has ended, or is not ours
            continue
        found |= {Path(path) for path in re.findall(rf"{SHARED_MEMORY}/\S+", maps)}
    return found


def pytest_sessionfinish(session):
    """MPI cannot tidy up after a rank that was killed, as some tests do on purpose: so this session does."""
    if hasattr(session.config, "workerinput") or not SHARED_MEMORY.is_dir():
        return
    if left := left_in_shared_memory():
        time.sleep(SETTLED)
        for path in (left := sorted(set(left) & set(left_in_shared_memory()))):
            path.unlink(missing_ok=True)
        session.config.stash[LEFT] = [path.name for path in left]


LEFT: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_terminal_summary(terminalreporter, config):
    if left := config.stash.get(LEFT, []):
        terminalreporter.write_line(f"{SHARED_MEMORY}: {len(left)} files of killed ranks were removed: {left[0]} ...")


# -- Slurm ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def slurm(need, tmp_path_factory):
    """The environment (SLURM_CONF) of a running one-node Slurm with all cores of this machine."""
    absent = [name for name in slurm_daemons.PROGRAMS if slurm_daemons.program(name) is None]
    need("slurm", not absent, f"apt-get install slurm-wlm munge (absent: {', '.join(absent)})")
    need("slurm", os.geteuid() == 0, "slurmd runs as root only")
    folder = Path(tmp_path_factory.mktemp("slurm"))
    with contextlib.ExitStack() as stack:
        yield slurm_daemons.start(folder, (HELD.port(), HELD.port()), stack)
