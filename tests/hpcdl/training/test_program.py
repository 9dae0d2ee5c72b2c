"""The training as a program: under mpiexec, under torchrun, killed and resumed, and what it says of mistakes."""

import os
import re
import subprocess
import sys

import psutil
import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.training.devices import choose
from hpcdl.training.program import LAUNCHERS, foreign_launcher, meeting
from hpcdl.training.train import train


@pytest.fixture(scope="module")
def weights():
    """The fingerprint that two ranks reach after an epoch, whatever carries their messages."""

    def rank(comm):
        with torch.random.fork_rng():
            return train(comm, epochs=1).fingerprint

    return simulate(rank, 2).results[0]


def torchrun(*arguments, seconds=100):
    """Exit code and output of two ranks; nothing is left of them after `seconds`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        for child in [
            *psutil.Process(process.pid).children(recursive=True),
            process,
        ]:  # ranks are in their own sessions
            child.kill()
        pytest.fail(f"torchrun did not end within {seconds} s; it printed:\n{process.communicate()[0]}")
    return process.returncode, printed


@pytest.mark.mpi
def test_hpcdl_train_runs_under_mpiexec(mpiexec, weights):
    code, printed = mpiexec(2, "-m", "hpcdl", "train", "--epochs", "1", seconds=100)
    assert code == 0, printed
    assert re.search(r"epoch 1: loss \d\.\d+, about [\d,]+ images/s, \d+ % of the time waiting", printed)
    assert f"2 of 2 replicas agree to the last bit ({weights[:12]})" in printed


LATE = """
import atexit
import sys
import time

from hpcdl.cli import app
from hpcdl.training.program import LAUNCHERS, os

if any(os.environ.get(rank) == "1" for _, rank in LAUNCHERS.values()):
    atexit.register(print, "rank 1 came to its end")
    atexit.register(time.sleep, 2)
app(["train", *sys.argv[1:]])
"""


@pytest.mark.labs  # starts processes
@pytest.mark.mpi
@pytest.mark.parametrize(
    "options",
    [["--epochs", "1"], ["--model", "mlp", "--mesh", "data=2", "--batch", "8", "--steps", "1"]],
    ids=["LeNet", "mesh"],
)
def test_no_rank_is_killed_that_leaves_after_the_others(mpiexec, options):
    """A launcher takes a rank that leaves without an end of MPI for one that died."""
    code, printed = mpiexec(2, "-c", LATE, *options)
    assert code == 0, printed
    assert "rank 1 came to its end" in printed


@pytest.mark.labs  # one run under mpiexec is in the first tier
def test_the_module_runs_under_torchrun_to_the_same_bits(weights):
    code, printed = torchrun("-m", "hpcdl.training", "--epochs", "1")
    assert code == 0, printed
    if not torch.cuda.is_available():
        assert f"2 of 2 replicas agree to the last bit ({weights[:12]})" in printed


KILLED = """
import os
import signal
import sys
import torch
from hpcdl.comm import MPIComm
from hpcdl.training.train import train

torch.set_num_threads(1)
comm = MPIComm()


def kill(step):
    if (step, comm.rank) == (12, 1):
        os.kill(os.getpid(), signal.SIGKILL)


train(comm, epochs=1, checkpoint=sys.argv[1], every=5, before_step=kill)
"""


@pytest.mark.mpi
def test_killed_run_resumes_to_the_same_bits(mpiexec, weights, tmp_path):
    file = tmp_path / "lenet.pt"
    code, printed = mpiexec(2, "-c", KILLED, str(file), seconds=100)
    assert code != 0, printed
    assert "signal 9" in printed
    assert torch.load(file, weights_only=True)["step"] == 10
    code, printed = mpiexec(2, "-m", "hpcdl.training", "--epochs", "1", "--checkpoint", str(file), seconds=100)
    assert code == 0, printed
    assert f"2 of 2 replicas agree to the last bit ({weights[:12]})" in printed


ELASTIC = """
import os
import signal
import sys
from hpcdl.training.program import ranks
from hpcdl.training.train import train

with ranks() as (comm, device):

    def kill(step):
        if (step, comm.rank, os.environ["TORCHELASTIC_RESTART_COUNT"]) == (12, 1, "0"):
            os.kill(os.getpid(), signal.SIGKILL)

    trained = train(comm, epochs=1, checkpoint=sys.argv[1], every=5, before_step=kill, device=device)
    if comm.rank == 0:
        print("restarts", os.environ["TORCHELASTIC_RESTART_COUNT"], "weights", trained.fingerprint[:12])
"""


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="the bits are those of processors")
def test_torchrun_resumes_to_the_same_bits(weights, tmp_path):
    (tmp_path / "elastic.py").write_text(ELASTIC)
    file = tmp_path / "lenet.pt"
    code, printed = torchrun("--max-restarts", "1", str(tmp_path / "elastic.py"), str(file), seconds=200)
    assert code == 0, printed
    assert f"restarts 1 weights {weights[:12]}" in printed


@pytest.mark.parametrize(("here", "apart"), [("2", True), ("1", False)])
def test_on_one_machine_a_restart_finds_no_address_of_the_start_before(here, apart, monkeypatch):
    torchs = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(torchs.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in (found | {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": here}).items():
        monkeypatch.setenv(name, value)
    seen = []
    for start in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", start)
        store = meeting()["store"]
        seen.append(store.check(["address of rank 0"]))
        store.set("address of rank 0", "a port")
    assert seen == [False, not apart]


@pytest.mark.mpi
def test_a_mistake_is_one_line_and_the_end_of_all_ranks(mpiexec):
    code, printed = mpiexec(2, "-m", "hpcdl.training", "--lr", "1e30", seconds=100)
    assert code != 0
    assert printed.count("FloatingPointError: step 1: the mean loss of all ranks is nan") == 1
    assert "Traceback" not in printed


@pytest.mark.labs  # one run under torchrun is in the first tier
def test_under_torchrun_a_mistake_is_told_once_too():
    code, printed = torchrun("-m", "hpcdl.training", "--all-reduce", "star")
    assert code != 0
    assert printed.count("ValueError: all_reduce is 'star'; it is a function of (x, comm) or one of naive, ring") == 1


@pytest.mark.parametrize(
    ("rank", "ranks", "gpus", "expected"),
    [
        (3, 4, 0, ("gloo", "cpu", "")),
        (3, 4, 4, ("nccl", "cuda:3", "")),
        (1, 2, 8, ("nccl", "cuda:1", "")),
        (2, 4, 1, ("gloo", "cuda:0", "4 ranks share 1 GPU: gloo carries the messages")),
        (3, 4, 2, ("gloo", "cuda:1", "4 ranks share 2 GPUs: gloo carries the messages")),
    ],
)
def test_a_rank_gets_a_gpu_of_its_own_where_there_are_enough(rank, ranks, gpus, expected):
    backend, device, remark = choose(rank, ranks, gpus)
    assert (backend, device) == expected[:2]
    assert remark.startswith(expected[2])
    assert bool(remark) == bool(expected[2])


ON_DEVICES = """
import sys
import torch
from hpcdl.comm import MPIComm, TorchComm
from hpcdl.training.devices import on_devices
from hpcdl.training.train import train

torch.set_num_threads(1)
mpi = MPIComm()
with on_devices(mpi, gpus=0) as found:
    assert found == (mpi, "cpu", ""), found
with on_devices(mpi, gpus=1) as (comm, device, remark):
    assert isinstance(comm, TorchComm) and (comm.rank, comm.size) == (mpi.rank, mpi.size)
    assert device == "cuda:0" and remark.startswith("2 ranks share 1 GPU: gloo"), (device, remark)
    sys.stdout.write(train(comm, epochs=1).fingerprint + "\\n")
"""


@pytest.mark.mpi
@pytest.mark.labs  # one run under torchrun is in the first tier
def test_engines_on_one_gpu_talk_over_gloo(mpiexec, weights):
    """The ranks find each other as they would on a machine with one GPU; the network stays on the processor here."""
    code, printed = mpiexec(2, "-W", "ignore", "-c", ON_DEVICES, seconds=100)
    assert code == 0, printed
    assert [line for line in printed.splitlines() if "gloo" not in line.lower()] == [weights] * 2


def alone(*arguments, **environment):
    """`python -m hpcdl.training` without a launcher of ours, and with what another leaves in the environment."""
    return subprocess.run(
        [sys.executable, "-m", "hpcdl.training", "--epochs", "1", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


# What Open MPI 5 leaves for its own library; MPICH finds PMIx's part, and ends the process when it gets no answer.
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-here-1@1",
    "PMIX_SERVER_URI41": "prterun-here-1@0;tcp4://127.0.0.1:1",
}


@pytest.mark.labs  # starts processes
@pytest.mark.mpi
@pytest.mark.parametrize("rank", ["0", "1"])
def test_another_mpis_launcher_is_detected_before_mpi_starts(rank):
    run = alone(**OPEN_MPI, OMPI_COMM_WORLD_RANK=rank, PMIX_RANK=rank)
    said = "2 processes were started by the mpiexec of another MPI, each alone; use"
    assert run.returncode == 1
    assert run.stderr.startswith(said if rank == "0" else "")
    assert len(run.stderr.splitlines()) == (rank == "0"), "one sentence, from one process"


@pytest.mark.parametrize(
    ("library", "environment", "found"),
    [
        ("MPICH Version: 5.0", {}, None),
        ("MPICH Version: 5.0", {"PMI_SIZE": "4", "PMI_RANK": "2"}, None),
        ("Open MPI v5.0.8", {"PMI_SIZE": "4", "PMI_RANK": "2"}, (4, 2)),
        ("Open MPI v5.0.8", {"OMPI_COMM_WORLD_SIZE": "4"}, None),
        ("Open MPI v5.0.8", {"MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}, (2, 1)),
        ("Intel(R) MPI Library 2021", {"OMPI_COMM_WORLD_SIZE": "3"}, (3, 0)),
    ],
)
def test_who_started_the_processes_is_read_from_their_environment(library, environment, found, monkeypatch):
    for names in LAUNCHERS.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert foreign_launcher(library) == found


@pytest.mark.mpi
@pytest.mark.labs  # one run under torchrun is in the first tier
def test_one_rank_is_one_rank():
    run = alone()
    assert run.returncode == 0, run.stderr
    assert "\n1 rank, " in run.stdout


@pytest.mark.mpi
@pytest.mark.labs  # one run under torchrun is in the first tier
def test_no_epoch_at_all_is_a_mistake():
    run = alone("--epochs", "0")
    assert run.returncode != 0
    assert run.stderr.startswith("rank 0: ValueError: epochs is 0; it is a number of times, 1 or more\n")
