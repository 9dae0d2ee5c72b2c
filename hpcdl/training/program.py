"""The training as a program, the same under mpiexec, torchrun and Slurm; `hpcdl.training.train` explains its
options."""

import os
import stat
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hpcdl.comm import Communicator


def train(
    epochs: Annotated[int, typer.Option(help="How often to see every image.")] = 15,
    batch: Annotated[int, typer.Option(help="Images per step, all ranks together.")] = 64,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.02,
    data: Annotated[str, typer.Option(help="digits, mnist or cifar10; the last two are fetched once.")] = "digits",
    seed: Annotated[int, typer.Option(help="The same seed gives the same weights, to the last bit.")] = 0,
    bucket_mb: Annotated[float, typer.Option(help="Gradients per message, MB.")] = 4.0,
    overlap: Annotated[bool, typer.Option(help="Send gradients during backward.")] = True,
    all_reduce: Annotated[str, typer.Option(help="A collective, such as ring, tree, rabenseifner.")] = "ring",
    checkpoint: Annotated[str | None, typer.Option(help="Save to this file, and continue from it.")] = None,
    every: Annotated[int, typer.Option(help="Steps between two savings.")] = 50,
) -> None:
    """Train LeNet-5 on all ranks that were started together.

    mpiexec -n 4 hpcdl train          (MPI, processors)

    torchrun --nproc-per-node 4 -m hpcdl.training          (NCCL with a GPU per rank, else gloo)
    """
    options = dict(locals())
    with ranks() as (comm, device):
        from hpcdl.training import train as training

        trained = training.train(comm, Progress(comm), device=device, **options)
        if comm.rank == 0:
            who = f"{comm.size} rank{'s' * (comm.size > 1)}"
            print(f"{who}, {trained.seconds:.1f} s: held-out accuracy {100 * trained.accuracy:.1f} %")
            print(f"{trained.replicas} of {comm.size} replicas agree to the last bit ({trained.fingerprint[:12]})")


class Progress:
    """Prints, on rank 0, a line per epoch: the loss, the speed of all ranks, and the share of time it was idle."""

    def __init__(self, comm: "Communicator"):
        self.comm, self.images, self.seconds, self.waited = comm, 0, 0.0, 0.0

    def __call__(self, record: dict) -> None:
        self.images += record["images"]
        self.seconds += record["total"]
        self.waited += record["wait"]
        if record["epoch"].is_integer() and self.comm.rank == 0:
            speed, share = self.images * self.comm.size / self.seconds, self.waited / self.seconds
            print(
                f"epoch {record['epoch']:.0f}: loss {record['mean_loss']:.3f}, about {speed:,.0f} images/s, "
                f"{100 * share:.0f} % of the time waiting for gradients",
                flush=True,
            )
            self.images, self.seconds, self.waited = 0, 0.0, 0.0


@contextmanager
def ranks() -> "Iterator[tuple[Communicator, str]]":
    """Provide this process's communicator and device, by its launcher; an error ends all ranks."""
    import torch

    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", 1))))  # ranks share the machine's cores
    with _torchrun() if "LOCAL_WORLD_SIZE" in os.environ else _mpi() as started:
        yield started


@contextmanager
def _torchrun():
    import torch

    from hpcdl.training.devices import choose, connected

    rank, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    backend, device, remark = choose(rank, here, torch.cuda.device_count())
    if device != "cpu":
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(backend, **meeting())
    comm = connected(backend, device)
    if remark and comm.rank == 0:
        print(remark, flush=True)
    try:
        yield comm, device
        torch.distributed.destroy_process_group()
    except Exception as error:
        _say(error, comm.rank)
        os._exit(1)  # torchrun ends the others; leaving a group of dead ranks would take minutes


def meeting() -> dict:
    """Return the ranks' rendezvous: torchrun's store, separated from the entries of an earlier start.

    Otherwise ranks would call that start's dead addresses (pytorch #135712). torchrun counts its starts separately on
    each node, so the count works only on one node; `hpcdl cluster script` makes new stores for several.
    """
    import torch.distributed as dist

    store, rank, size = next(dist.rendezvous("env://"))
    if os.environ["LOCAL_WORLD_SIZE"] == str(size):
        store = dist.PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    return {"store": store, "rank": rank, "world_size": size}


# The variables in which a launcher gives the number of processes and this one's rank. MPICH may mistake Open MPI's
# variables for its own and abort, so MPI must not start before they have been read.
LAUNCHERS = {
    "Open MPI": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    "MPICH": ("PMI_SIZE", "PMI_RANK"),
    "Intel": ("MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
}


def foreign_launcher(library: str) -> tuple[int, int] | None:
    """Return the number of processes and the rank from another MPI's launcher, if mpi4py's `library` knows neither.

    Intel's MPI derives from MPICH, and each understands the other's launcher.
    """
    ours = "Open MPI" if library.startswith("Open MPI") else "MPICH"
    if LAUNCHERS[ours][0] in os.environ:
        return None
    for size, rank in LAUNCHERS.values():
        if int(os.environ.get(size, 1)) > 1:
            return int(os.environ[size]), int(os.environ.get(rank, 0))
    return None


def _require_own_launcher(library: str) -> None:
    """End this process if another MPI's mpiexec started it, since each would be a single rank; the first one prints
    why."""
    found = foreign_launcher(library)
    if found is None:
        return
    from hpcdl.cluster import find_launcher

    processes, rank = found
    if rank == 0:
        print(
            f"{processes} processes were started by the mpiexec of another MPI, each alone; use {find_launcher()}",
            file=sys.stderr,
        )
    sys.exit(1)


def load_mpi() -> ModuleType:
    """Import `mpi4py.MPI` without starting MPI, and end MPI at exit if it was started.

    All training code imports it here: mpi4py decides at its first import whether it ends MPI, and a launcher kills all
    ranks if one exits without ending it.
    """
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    from mpi4py import MPI

    return MPI


@contextmanager
def _mpi():
    MPI = load_mpi()
    _require_own_launcher(MPI.Get_library_version())
    if not MPI.Is_initialized():
        MPI.Init_thread()

    from hpcdl.comm import MPIComm

    comm = MPIComm()
    try:
        yield comm, "cpu"
    except Exception as error:
        _say(error, comm.rank)
        if comm.size == 1:  # no other rank to end; Abort prints a line of its own
            sys.exit(1)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            wait_until_read(stream.fileno())
        MPI.COMM_WORLD.Abort(1)


def wait_until_read(pipe: int, seconds: float = 5.0) -> None:
    """Wait until the other end of a pipe has read all bytes: a launcher that is told to abort leaves the rest unread.

    Returns at once for other kinds of files, and after `seconds` if some bytes are still unread.
    """
    if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
        return
    import fcntl  # not on Windows
    import termios

    end = time.monotonic() + seconds
    while any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))) and time.monotonic() < end:
        time.sleep(0.001)


def _say(error: Exception, rank: int) -> None:
    """Print the error once, as one line if that says everything: if all ranks have it, rank 0 comes first."""
    time.sleep(2 if rank else 0)  # meanwhile the launcher ends the others because of rank 0
    if not isinstance(error, (ValueError, FloatingPointError, OSError)):
        traceback.print_exception(error)
    said = str(error).removeprefix(f"rank {rank}: ")
    print(f"rank {rank}: {type(error).__name__}: {said}", file=sys.stderr, flush=True)
