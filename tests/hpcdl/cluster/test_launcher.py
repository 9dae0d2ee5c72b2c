"""Finding mpiexec: the one of the MPI that mpi4py loads, or a word about where it was looked for."""

import os
from pathlib import Path

import pytest

from hpcdl.cluster import find_launcher
from hpcdl.cluster import launcher as module
from hpcdl.cluster.launcher import LauncherError, launcher_at


def script(path: Path, prints: str) -> Path:
    path.write_text(f"#!/bin/sh\nprintf '{prints}'\n")
    path.chmod(0o755)
    return path


def test_the_wheels_launcher_comes_before_one_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    other = script(tmp_path / "mpiexec", "mpiexec (OpenRTE) 4.1.4")
    assert find_launcher().path != other
    monkeypatch.setattr(module, "_of_the_wheel", list)
    monkeypatch.setattr(module.sysconfig, "get_path", lambda _: str(tmp_path / "nothing"))
    assert find_launcher().path == other
    assert find_launcher().mpi == "mpiexec (OpenRTE) 4.1.4"
    assert find_launcher().options == []


def test_mpich_is_known_by_its_launcher(tmp_path):
    found = launcher_at(script(tmp_path / "mpiexec", "HYDRA build details:\\n    Version:      5.0.2\\n"))
    assert found.mpi == "MPICH 5.0.2"
    assert str(found) == f"{tmp_path}/mpiexec (of MPICH 5.0.2)"


def test_without_any_launcher_it_says_where_it_looked_and_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_of_the_wheel", list)
    monkeypatch.setattr(module.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LauncherError, match=rf"neither in {tmp_path} nor on the PATH.*\nrun: pip install .*mpich"):
        find_launcher()


def test_a_file_that_cannot_run_is_refused(tmp_path):
    with pytest.raises(LauncherError, match="cannot be used as mpiexec"):
        launcher_at(tmp_path / "absent")


@pytest.mark.parametrize(("letters", "fits"), [(1, True), (63, True), (64, False), (200, False)])
def test_a_name_too_long_for_mpich_is_refused(letters, fits):
    mpich = module.Launcher(Path("mpiexec"), "MPICH 5.0.2")
    if fits:
        return mpich.check_host_name("a" * letters)
    with pytest.raises(LauncherError, match=f"name has {letters} letters .* at most 63; give the machine"):
        mpich.check_host_name("a" * letters)
