"""Binder builds what everyone else runs: the same pins, found by repo2docker's own rules."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcdl.cli import HIDDEN

ROOT = Path(__file__).parents[1]
BINDER = ROOT / "binder"


def pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))


def test_the_pins_are_those_of_everyone():
    requirements = (BINDER / "requirements.txt").read_text()
    everyone = pins((ROOT / "constraints.txt").read_text())
    assert "--constraint ../constraints.txt" in requirements
    assert pins(requirements).items() <= everyone.items()
    assert pins(requirements).keys() == {"torch"}, "named, so that the CPU build is taken and nothing else"


@pytest.fixture(scope="module")
def detected():
    """repo2docker's build pack for this repository."""
    app = pytest.importorskip("repo2docker.app", reason="pip install jupyter-repo2docker")
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        tool = app.Repo2Docker()
        return next(pack for pack in (kind(tool.base_image) for kind in tool.buildpacks) if pack.detect())
    finally:
        os.chdir(before)


def test_repo2docker_takes_pythons_build_pack_with_our_version(detected):
    assert type(detected).__name__ == "PythonBuildPack"
    assert (BINDER / "runtime.txt").read_text().strip() == "python-3.11"


def test_dockerfile_installs_requirements(detected, monkeypatch):
    monkeypatch.chdir(ROOT)
    detected.platform = "linux/amd64"
    dockerfile = detected.render({})
    assert re.search(r'pip install --no-cache-dir -r "?binder/requirements.txt', dockerfile)
    assert "binder/start" in dockerfile


def started(command: list) -> str:
    """What a program prints that Binder starts."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(
        [BINDER / "start", *command], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout.strip()


def test_the_start_script_gives_jupyterlab_the_courses_settings():
    show = "import os, sys; print(*(os.environ[k] for k in ('JUPYTER_CONFIG_PATH', 'JUPYTER_PATH', 'OMP_NUM_THREADS')))"
    paths, data, threads = started([sys.executable, "-c", show]).split()
    assert (Path(data.split(os.pathsep)[0]) / "kernels" / "python3" / "kernel.json").is_file()
    assert (Path(paths.split(os.pathsep)[0]) / "labconfig").is_dir()
    assert threads == "1"


def test_the_file_browser_hides_there_what_it_hides_at_home():
    settings = json.loads((BINDER / "jupyter_server_config.json").read_text())
    assert settings == {"ContentsManager": {"hide_globs": list(HIDDEN)}}


def test_jupyter_reads_that_from_where_the_start_script_leads_it():
    show = "import os; print(os.environ['JUPYTER_CONFIG_PATH'])"
    paths = started([sys.executable, "-c", show]).split(os.pathsep)
    assert any((Path(path) / "jupyter_server_config.json").is_file() for path in paths if path.strip())
