"""Engines start here whatever surrounds the notebook, and end however they hang."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import ipyparallel
import psutil
import pytest

from hpcdl.cluster import Cluster, ClusterError, engine_sets, launcher, lifeline, processes, surroundings
from hpcdl.cluster.diagnosis import StoppedRunError
from hpcdl.cluster.run import Lost, Run, _asked

JOBS = {
    "SLURM_JOB_ID": "1",
    "SLURM_NODELIST": "node1",
    "PMI_RANK": "3",
    "PMIX_SERVER_URI": "x",
    "OMPI_COMM_WORLD_RANK": "0",
    "PBS_NODEFILE": "/nodes",
    "LSB_HOSTS": "a b",
    "HYDRA_LAUNCHER": "slurm",
}


def test_variables_of_a_job_do_not_reach_engines():
    kept = {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "OMP_NUM_THREADS": "2", "KUBERNETES_PORT": "1"}
    assert launcher.without_job(JOBS | kept) == kept


@pytest.mark.mpi
def test_engines_start_inside_a_job(monkeypatch, tmp_path, started):
    """An srun on the PATH reaches no controller; the folder has modules called as a library's are, and the runtime
    folder is a file."""
    for module in ("random", "torch", "mpi4py", "beside"):
        (tmp_path / f"{module}.py").write_text("MINE = 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "beside.py"))
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho 'srun: error: no controller' >&2\nexit 1\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in JOBS.items():
        monkeypatch.setenv(name, value)
    with started(2) as cluster:
        assert cluster.run(lambda comm: comm.rank * __import__("beside").MINE) == [0, 1]
        addresses = cluster.run(listening)
    assert all(address.startswith("127.") for rank in addresses for address in rank), addresses


def listening(comm):
    """The addresses at which this rank itself listens (mpiexec's own socket is left out: its children inherit it)."""
    import psutil

    inherited = {c.laddr for c in psutil.Process().parent().net_connections() if c.status == "LISTEN"}
    return [c.laddr.ip for c in psutil.Process().net_connections() if c.status == "LISTEN" and c.laddr not in inherited]


listening.__module__ = "__main__"  # pickled by value, as a notebook's functions are


HANGS = (
    "import ctypes; from hpcdl.cluster import lifeline; lifeline.end_with_parent(); "
    "print('hangs', flush=True); ctypes.PyDLL(None).sleep(300)"  # with the interpreter's lock, as MPI_Init does
)


@pytest.mark.parametrize("gone", ["lease", "kernel", "shell"])
@pytest.mark.labs  # the watchdog waits for five seconds
@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends a process with its parent")
def test_an_engine_that_hangs_ends_with_its_kernel(gone, tmp_path):
    kernel = subprocess.Popen(["sleep", "300"])
    lease = lifeline.lease(tmp_path)
    shell = subprocess.Popen(
        ["/bin/sh", engine_sets.ENGINE[1], sys.executable, "-c", HANGS],
        stdout=subprocess.PIPE,
        env=os.environ | lifeline.holding(lease) | {lifeline.VARIABLE: f"{lifeline.machine()} {kernel.pid} 0"},
    )
    try:
        assert shell.stdout.readline() == b"hangs\n"
        family = psutil.Process(shell.pid).children(recursive=True)
        if gone == "lease":
            lease.unlink()
        elif gone == "shell":
            shell.kill()
        else:
            kernel.kill()
            kernel.wait()
        shell.wait(60)
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive
    finally:
        for process in (kernel, shell):
            process.kill()
            process.wait()
        shell.stdout.close()


def test_a_pid_of_another_machine_means_nothing(monkeypatch):
    """Two containers may have one name: their processes are numbered apart."""
    assert lifeline.environment()[lifeline.VARIABLE].split()[0] == lifeline.machine()
    script = Path(engine_sets.ENGINE[1]).read_text()
    line = next(line for line in script.splitlines() if line.startswith("machine="))
    said = subprocess.run(["/bin/sh", "-c", f'{line}; echo "$machine"'], capture_output=True, text=True, check=True)
    if sys.platform == "linux":
        assert said.stdout.strip() == lifeline.machine()


class Answer(SimpleNamespace):
    def ready(self):
        return True

    def get(self, _seconds):
        raise self.error


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ipyparallel.error.EngineError("Engine 3 died"), "died"),
        (ipyparallel.error.RemoteError("EngineError", "Engine 3 died", [], {}), "died"),  # as the controller says it
        (ipyparallel.error.RemoteError("NameError", "x", [], {}), "raised"),
        (ipyparallel.error.TimeoutError("gone"), "died"),
    ],
)
def test_an_engine_that_is_gone_has_died(error, end):
    """Also on another machine, where its process cannot be asked."""
    cluster = SimpleNamespace(black_box=lambda rank: {})
    assert Run._look_at(SimpleNamespace(cluster=cluster), 3, Answer(error=error)).end == end


def test_an_engine_that_nobody_knows_has_died():
    """It ended between two runs."""

    def forgotten(*_):
        raise IndexError("No such engine: 3")

    answer = _asked(SimpleNamespace(apply_async=forgotten))
    assert isinstance(answer, Lost)
    cluster = SimpleNamespace(black_box=lambda rank: {})
    assert Run._look_at(SimpleNamespace(cluster=cluster), 3, answer).end == "died"


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("", ""),
        ("2026 [IPEngine] Loading connection file\n", ""),
        ("starting\nsrun: error: Unable to contact slurm controller\nsrun: error: more\n", "srun: error: Unable"),
        ("Abort(874136847) on node 0: Fatal error in internal_Init_thread\n", "Abort(874136847)"),
        ("bash: line 1: hydra_pmi_proxy: command not found\n", "bash: line 1"),
    ],
)
def test_the_launchers_first_error_is_found(log, error, tmp_path):
    (tmp_path / "engines.log").write_text(log)
    said = processes.Processes.first_error(SimpleNamespace(directory=tmp_path))
    assert said.startswith(error)
    assert bool(said) is bool(error)


def test_what_lives_is_not_in_a_folder_that_is_swept(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    begun = processes.Processes(SimpleNamespace(stop=lambda: None))
    assert begun.directory.parent == tmp_path / "runtime"
    begun.stop()
    assert not begun.directory.exists()


class Ranks(Run):
    """A run of ranks that take three looks to stop; ■ is pressed at each look."""

    def __init__(self):
        self.cluster = SimpleNamespace(stopped=False, finished=lambda reports: self.seen.append("finished"))
        self.seen, self._ended, self._reports = [], False, []

    def _over(self, stopping=False):
        self.seen.append("look")
        if not stopping or len(self.seen) < 4:
            raise KeyboardInterrupt
        return True


def test_a_stopped_run_is_one_sentence():
    """However often one presses, the ranks are followed to their end and the cluster knows of it."""
    ranks = Ranks()
    with pytest.raises(StoppedRunError, match="You stopped this run") as caught:
        list(ranks._follow())
    assert caught.value._render_traceback_() == [str(caught.value)]
    assert ranks.seen == ["look"] * 4 + ["finished"]


ROOM = SimpleNamespace(free=1e12)


@pytest.mark.parametrize(
    ("full", "limits", "said"),
    [
        (
            "runtime",
            {},
            r"runtime has 0 MB left, and engines need 1 MB: free some, or let the variable JUPYTER_RUNTIME",
        ),
        ("/dev/shm", {}, r"/dev/shm has 0 MB left, and engines need 8 MB: .*--shm-size"),
        ("", {"RLIMIT_NOFILE": 64}, r"may open only 64 files here, and engines need 256: run ulimit -n 256 first"),
        ("", {"RLIMIT_NPROC": 100}, r"only 100 threads here, and need about 1157: run ulimit -u 1157 first"),
        ("", {"RLIMIT_AS": 2**30}, r"only 1,074 MB here, and engines need 2000 MB: run ulimit -v 1953125 first"),
        (
            "",
            {"RLIMIT_FSIZE": 2**20},
            r"files of only 1 MB here, and engines need 8 MB: run ulimit -f 7812 first",
        ),
        ("", {}, None),
    ],
)
def test_what_keeps_engines_from_starting_is_one_sentence(full, limits, said, monkeypatch):
    """Each names what is too small, how large it is, how large it must be, and what to do."""
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(surroundings, "_threads", lambda: 1007)
    limits = {getattr(surroundings.resource, name): value for name, value in limits.items()}
    monkeypatch.setattr(surroundings, "_limit", lambda kind: limits.get(kind, float("inf")))
    places = {Path(full): SimpleNamespace(free=0)}
    monkeypatch.setattr(surroundings.shutil, "disk_usage", lambda place: places.get(place, ROOM))
    causes = surroundings.causes(Path("runtime"), 2)
    assert len(causes) == bool(said)
    assert not said or re.search(said, causes[0]), causes


@pytest.mark.parametrize(
    ("error", "causes", "said"),
    [
        (TimeoutError("no answer"), [], "the engines cannot start:\nTimeoutError: no answer"),
        (TimeoutError("no answer"), ["a b"], "the engines cannot start:\na b"),
        (ClusterError("mpiexec ended"), ["a b"], "a b\nmpiexec ended"),
        (ClusterError("mpiexec ended"), [], "mpiexec ended"),
    ],
)
def test_a_start_that_fails_says_why(error, causes, said, monkeypatch):
    def fails(cluster):
        raise error

    monkeypatch.setattr(Cluster, "_begin", fails)
    monkeypatch.setattr(surroundings, "causes", lambda folder, n: causes)
    with pytest.raises(ClusterError) as caught:
        Cluster(2).start()
    assert str(caught.value) == said


@pytest.mark.parametrize(("ended", "begun"), [("ended", []), (None, ["no"])])
def test_engines_that_do_not_come_back_are_started_again(ended, begun, monkeypatch):
    """A host may be down when they are to replace others, and up when the next run begins."""
    seen, cluster = [], Cluster(2)

    def meet():
        seen.append("meet" if "start" in seen else "no")
        if seen[-1] == "no":
            raise ClusterError("mpiexec ended")

    cluster._processes = SimpleNamespace(
        controller_ended=lambda: False,
        stop_engines=lambda: seen.append("stop"),
        start_engines=lambda: seen.append("start"),
        engines=SimpleNamespace(why_ended=lambda: ended),
    )
    cluster.restarting = cluster._launched = True
    monkeypatch.setattr(cluster, "_meet_engines", meet)
    cluster.start()
    assert seen == [*begun, "stop", "start", "meet"]


def test_engines_work_where_the_folder_is_deleted_and_warnings_are_errors(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    assert processes.folder(tmp_path) == str(tmp_path)
    program = [sys.executable, "-c", "import os, sys; print(os.getcwd(), sys.warnoptions)"]
    processes.start("engines", tmp_path, program).wait(60)
    assert (tmp_path / "engines.log").read_text() == f"{tmp_path} []\n"


def test_a_controller_that_ended_is_replaced_with_its_engines(monkeypatch, capsys):
    ended, begun = SimpleNamespace(controller_ended=lambda: True), []
    cluster = Cluster(2)
    cluster._processes, cluster._finalizer, cluster._known = ended, lambda: begun.append("end"), {0, 1}
    monkeypatch.setattr(Cluster, "_begin", lambda self: begun.append("begin"))
    cluster.start()
    assert begun == ["end", "begin"]
    assert cluster._known == set()
    assert not cluster.stopped
    told = capsys.readouterr().out
    assert "controller has ended, so new engines start" in told
    assert "the variables of the old ones are lost" in told
