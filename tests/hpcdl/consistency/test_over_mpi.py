"""The parameter server on real ranks, with deaths; started with mpiexec, this file is one of the ranks."""

import math
import os
import signal
import sys
import time

import pytest
import torch

N, STEPS, LR = 50_000, 6, 0.25  # elements: messages go through shared memory


def start():
    return torch.arange(N, dtype=torch.float64)


def constant(rank, k):
    return torch.arange(N, dtype=torch.float64) * rank + k


def expected(steps):
    """Steps of each worker -> the weights."""
    return start() - LR * sum(constant(rank, k) for rank, done in steps.items() for k in range(done))


def sgd(params):
    return torch.optim.SGD(params, LR)


pytestmark = [pytest.mark.mpi, pytest.mark.labs, pytest.mark.timeout(120)]  # processes of their own


@pytest.mark.parametrize("staleness", ["0", pytest.param("2", marks=pytest.mark.long), "inf"])
def test_each_gradient_is_applied_exactly_once(mpiexec, staleness):
    code, printed = mpiexec(4, __file__, "whole", staleness, "2", seconds=60)
    assert (code, printed.count("equal")) == (0, 2), printed


def test_it_runs_over_gloo(mpiexec, tmp_path):
    code, printed = mpiexec(4, __file__, "gloo", "1", "2", str(tmp_path), seconds=60)
    assert (code, printed.count("equal")) == (0, 2), printed


@pytest.mark.parametrize("staleness", [pytest.param("0", marks=pytest.mark.long), "inf"])
def test_a_worker_that_is_killed_is_missed_and_the_others_go_on(mpiexec, staleness):
    """Under a shell that hides the death from mpiexec, which would end the others for its sake."""
    _, printed = mpiexec(3, "-c", HIDDEN, __file__, "worker dies", staleness, "1", seconds=60)
    assert "server 0: worker 2 is lost after 3 iterations: nothing was heard of it" in printed
    assert printed.count("equal") == 1, printed


def test_a_worker_that_is_killed_is_missed_while_another_speaks(mpiexec):
    """Long before a wait would end: the other worker needs 2.4 s for its six gradients, and time limits are 30 s."""
    _, printed = mpiexec(3, "-c", HIDDEN, __file__, "worker missed", "inf", "1", seconds=60)
    assert "server 0: worker 2 is lost after 3 iterations: nothing was heard of it for" in printed
    assert printed.count("equal") == 1, printed


def test_killed_server_resumes_from_its_snapshot(mpiexec, tmp_path):
    _, printed = mpiexec(3, "-c", HIDDEN, __file__, "server dies", "1", "1", str(tmp_path), seconds=60)
    assert "server 0 does not answer after" in printed
    assert "equal" not in printed
    code, printed = mpiexec(3, __file__, "whole", "1", "1", str(tmp_path), seconds=60)
    assert (code, printed.count("equal")) == (0, 1), printed


HIDDEN = """
import subprocess, sys, time
subprocess.call([sys.executable, *sys.argv[1:]], close_fds=False)
time.sleep(10)  # the launcher ends all others for the sake of one that ends out of order
"""


def over_gloo(mpi, folder: str):
    from hpcdl.comm import TorchComm

    store = torch.distributed.FileStore(f"{folder}/store", mpi.size)
    torch.distributed.init_process_group("gloo", store=store, rank=mpi.rank, world_size=mpi.size)
    return TorchComm()


# Seconds that servers wait, and workers, which may be held while their server waits for another.
LIMITS = {"worker dies": (3.0, 6.0), "server dies": (3.0, 6.0), "worker missed": (30.0, 30.0)}


def main(what: str, staleness: str, servers: str, folder: str | None = None):
    from hpcdl.comm import CommError, MPIComm
    from hpcdl.consistency import Server, work

    torch.set_num_threads(1)
    count = int(servers)
    comm = MPIComm()
    if what == "gloo":
        comm, folder = over_gloo(comm, folder), None
    missed = what == "worker missed"

    def gradient(w, k):
        time.sleep((0.4 if missed else 0.05) * (comm.rank == count))  # the first is slow
        if what in ("worker dies", "worker missed") and comm.rank == 2 and k == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return constant(comm.rank, k)

    def mortal(params):
        optimizer = sgd(params)
        if what == "server dies":
            optimizer.register_step_post_hook(lambda *_: len(steps) < 7 or os.kill(os.getpid(), signal.SIGKILL))
            optimizer.register_step_pre_hook(lambda *_: steps.append(1))
        return optimizer

    steps: list[int] = []
    if comm.rank < count:
        patience = 1.0 if missed else math.inf
        server = Server(comm, start(), mortal, count, float(staleness), folder, 2, patience)
    comm.barrier()  # time limits begin when all are there
    if what in LIMITS:
        comm.timeout = LIMITS[what][comm.rank >= count]
    if comm.rank < count:
        check_served(server.serve(), comm, count)
    else:
        try:
            work(comm, start(), gradient, STEPS, count)
        except CommError as error:
            print(error, flush=True)
    end(what)


def check_served(served, comm, count: int):
    done = {rank: 3 if rank in served.lost else STEPS for rank in range(count, comm.size)}
    assert torch.equal(served.w, expected(done).tensor_split(count)[comm.rank])
    print("equal", flush=True)


def end(what: str):
    if what == "gloo":
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    elif what != "whole":
        os._exit(0)  # MPI cannot end in order: it would wait for the dead


if __name__ == "__main__":
    main(*sys.argv[1:])
