"""The lowest versions that pyproject.toml allows work together, as far as this machine's Python and torch allow."""

import os
import platform
import re
import site
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[1]
PINNED = {"torch", "triton"}  # constraints.txt has their builds without CUDA, of one version
TESTS = [
    "tests/test_commands.py",
    "tests/hpcdl/test_cli.py",
    "tests/hpcdl/test_kernel.py",
    "tests/labs/test_first_cells.py",
    "tests/hpcdl/comm",
    "tests/hpcdl/data",
    "tests/hpcdl/widgets",
    "tests/autograder/checks",
    "tests/autograder/authors",
    "tests/autograder/test_in_a_kernel.py",
    "tests/autograder/walls",
    "tests/hpcdl/kernels",
]


def lowest() -> list[str]:
    """The direct dependencies in their lowest versions."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found = dict(re.match(r"([\w.-]+)>=([\d.]+)", requirement).groups() for requirement in needed)
    return [f"{name}=={version}" for name, version in found.items() if name not in PINNED]


@pytest.mark.skipif(platform.system() != "Linux", reason="some requirements are Linux's alone")
def test_the_lowest_versions_pass_the_tests(tmp_path):
    """In an environment of its own, whose packages hide those of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=60)
    python = tmp_path / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    installed = subprocess.run(
        [*map(str, install), *lowest()], capture_output=True, text=True, timeout=600, check=False
    )
    if "No matching distribution" in installed.stderr and "connect" in installed.stderr.lower():
        pytest.skip("no package registry can be reached")
    assert installed.returncode == 0, installed.stderr
    packages = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    others = [ROOT, *filter(os.path.isdir, site.getsitepackages())]
    (packages / "others.pth").write_text("\n".join(map(str, others)))
    ran = subprocess.run(
        [
            python,
            "-m",
            "pytest",
            "-q",
            "-W",
            "default",
            "-m",
            "not long and not labs",
            "-n",
            "2",
            "--dist",
            "loadfile",
            *TESTS,
        ],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
