"""Finding mpiexec: the one of the MPI that mpi4py loads, or a word about where it was looked for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcdl.cluster import find_launcher, lifeline, processes
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


HYDRA, OPEN, OPEN_4 = (
    "HYDRA build details:\\n Version: 5.0.2\\n",
    "mpiexec (Open MPI) 5.0.11",
    "mpiexec (OpenRTE) 4.1.4",
)


@pytest.mark.parametrize(
    ("wheel", "path", "loads", "found", "said"),
    [
        (HYDRA, OPEN, "MPICH 5.0.2", "wheel", ""),
        (HYDRA, OPEN, "Open MPI v5.0.11", "path", ""),
        (HYDRA, OPEN_4, "Open MPI v4.1.4", "path", ""),
        (OPEN, HYDRA, "MPICH 5.0.2", "path", ""),
        (HYDRA, HYDRA, "Open MPI v5.0.11", "wheel", "loads Open MPI v5.0.11, and .*; this installs one MPI for both"),
        (HYDRA, OPEN, "", "wheel", ""),  # mpi4py loads none
        (HYDRA, "exit 1", "Open MPI v5.0.11", "wheel", "starts programs of another MPI"),
    ],
)
def test_of_two_mpis_it_takes_the_one_that_mpi4py_loads(wheel, path, loads, found, said, tmp_path, monkeypatch):
    """A site's Open MPI may be on the PATH, and its library in LD_LIBRARY_PATH or MPI4PY_LIBMPI."""
    for folder, prints in (("wheel", wheel), ("path", path)):
        (tmp_path / folder).mkdir()
        script(tmp_path / folder / "mpiexec", prints)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:{os.environ['PATH']}")
    monkeypatch.setattr(module, "_of_the_wheel", lambda: [tmp_path / "wheel" / "mpiexec"])
    monkeypatch.setattr(module.sysconfig, "get_path", lambda _: str(tmp_path / "nothing"))
    monkeypatch.setattr(module, "loaded", lambda: loads)
    assert find_launcher().path == tmp_path / found / "mpiexec"
    assert re.search(said, module.mismatch(find_launcher()))
    assert bool(module.mismatch(find_launcher())) is bool(said)


def test_another_mpi_than_mpi4pys_is_named_with_the_right_one(monkeypatch):
    right = find_launcher()
    monkeypatch.setattr(module, "loaded", lambda: right.mpi)
    wrong = module.Launcher(Path("/opt/mpiexec"), OPEN)
    assert module.mismatch(wrong).endswith(f"{wrong} starts programs of another MPI; use {right}")
    monkeypatch.setattr(module, "loaded", lambda: "Open MPI v5.0.11")
    monkeypatch.setenv("MPI4PY_LIBMPI", "/opt/libmpi.so")
    assert module.mismatch(right).endswith("; unset MPI4PY_LIBMPI")


def test_the_mpi_that_mpi4py_loads_is_short():
    assert module.kind(module.loaded()) == find_launcher().kind
    assert module.short("MPICH Version:      5.0.2\nMPICH Release date") == "MPICH 5.0.2"
    assert module.short("Open MPI v5.0.11, package: Open MPI user@host Distribution") == "Open MPI v5.0.11"


def test_open_mpi_starts_more_ranks_than_cores_also_as_root():
    options = module.Launcher(Path("mpiexec"), OPEN_4).options_here
    assert options[:4] == ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    assert options[4:] == (["--allow-run-as-root"] if os.getuid() == 0 else [])


def test_the_shared_memory_of_each_mpi_is_known():
    files = ["/dev/shm/mpich_shm_1_0", "/dev/shm/sm_segment.vm.0.c750001.1", "/dev/shm/vader_segment.vm.0.1.0"]
    maps = "".join(f"7f90-7f91 rw-s 00000000 00:1b 5462   {file}\n" for file in [*files, "/dev/shm/sem.mp-1"])
    assert lifeline.SHARED_MEMORY.findall(maps) == files


@pytest.mark.skipif(sys.platform != "linux", reason="reads what a process maps")
def test_a_rank_that_is_ended_leaves_no_shared_memory():
    """Also in MPI's start, where no rank has told the notebook of its file."""
    file = Path(f"/dev/shm/mpich_shm_{os.getpid()}_test")
    program = (
        "import mmap, sys, time; file = open(sys.argv[1], 'w+b'); file.truncate(4096); "
        "kept = mmap.mmap(file.fileno(), 4096); print(flush=True); time.sleep(300)"
    )
    shell = ["/bin/sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", program, file]
    rank = subprocess.Popen(shell, stdout=subprocess.PIPE)
    with rank.stdout:
        rank.stdout.readline()
        assert file.exists()
        processes.end(rank)
    assert not file.exists()


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
