"""The cluster as the notebook sees it: start, run, stream, stop."""

import contextlib
import platform
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from IPython import get_ipython

from hpcdl.cluster import cells, lifeline, profiles, watcher
from hpcdl.cluster.diagnosis import ClusterError, RankReport, StoppedRunError
from hpcdl.cluster.engine_sets import MpiexecEngines
from hpcdl.cluster.launcher import MEND, find_launcher, launcher_at, short
from hpcdl.cluster.processes import START_SECONDS, Engine, OversubscribedWarning, Processes, runtime_folder, until
from hpcdl.cluster.run import Record, Run
from hpcdl.cluster.turns import EngineTurns
from hpcdl.machine import cores
from hpcdl.saying import StatusLine, sentences

__all__ = ["Cluster", "Record"]

FIRST_ERROR = 12  # after these seconds a launcher's error ends a start before its patience does


class Cluster:
    """`n` MPI processes that run functions of the notebook; `start()` or `with` starts them.

    They run on this machine, or where ipyparallel's `profile` says: `hpcdl cluster --profile slurm` (or ssh) prepares
    and tests one. `mpiexec` is the launcher; by default it belongs to the MPI that mpi4py loads.
    """

    def __init__(self, n: int = 4, mpiexec: str | Path | None = None, profile: str | None = None):
        if type(n) is not int or n < 1:
            raise ValueError(f"Cluster: n is {n!r}; the number of engines is an int, 1 or more")
        self.n = n
        self.clean = True  # whether the last run left no messages behind
        self.failures = 0  # runs that left messages behind
        self.restarting, self._launched = False, False
        self.engines: list[Engine] = []  # by rank
        self._mpiexec, self._profile = mpiexec, profile
        self._processes: Processes | None = None
        self._client: Any = None  # ipyparallel's
        self._known: set[int] = set()  # ipyparallel's ids of earlier engines
        self._warming_up: list[Any] = []
        self._runs, self._turns, self._line = 0, EngineTurns(), StatusLine()
        self._life = threading.RLock()  # so that two threads start the engines only once
        self.stopped = False

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        state = "stopped" if self.stopped else "running" if self.engines else "not started"
        return f"<Cluster of {self.n} engines, {state}>"

    @property
    def directory(self) -> Path:
        """Return the folder in which engines leave information for the notebook's side."""
        return self._started_processes.directory

    @property
    def _started_processes(self) -> Processes:
        assert self._processes is not None  # created by `start`
        return self._processes

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> "Cluster":
        """Start the engines, unless they are running, and wait until they answer.

        A notebook has one set of engines: it stops an earlier cluster's engines, and says so.
        """
        with self._life:
            return self._start()

    def _start(self) -> "Cluster":
        if self.stopped:
            raise ClusterError("this cluster was stopped; start another: Cluster(n=4).start()")
        if self._processes is not None and self._processes.controller_ended():
            sentences(
                "Note: the engines' controller has ended, so new engines start; the variables of the old ones are lost."
            )
            self._end()
            self._processes, self._client, self._known, self.restarting = None, None, set(), False
        if self._processes is not None and not self.restarting:
            return self
        first = self._processes is None
        self._line = StatusLine()
        if first:
            cells.take_over(self)
        try:
            self._begin() if first else self._meet_again()
        except BaseException as error:
            message = self._explain(error) if isinstance(error, Exception) else ""
            if first:
                self.stop()
            if isinstance(error, KeyboardInterrupt):
                raise StoppedRunError("You stopped the start of the engines. They can be started again.") from None
            if message:
                raise ClusterError(message) from error
            raise
        return self

    def _explain(self, error: Exception) -> str:
        from hpcdl.cluster import surroundings  # needs what Windows lacks

        folder = self.directory if self._processes else runtime_folder() or Path(tempfile.gettempdir())
        return surroundings.explain(error, folder, self.n)

    def stop(self) -> None:
        """End the engines and the controller; the cluster cannot be used again."""
        self.stopped = True
        self._end()

    def _end(self) -> None:
        if self._client is not None:
            self._client.close(linger=0)
        if self._processes is not None:
            self._finalizer()
        self.engines = []

    def again(self) -> "Cluster":
        """Return a new cluster like this one, not started, to replace a stopped one."""
        return Cluster(self.n, self._mpiexec, self._profile)

    def _prepare(self) -> Processes:
        mpiexec = launcher_at(self._mpiexec) if self._mpiexec else find_launcher()
        mpiexec.check_host_name(platform.node())
        if self._profile is None:
            self._warn_if_oversubscribed()
            return Processes(MpiexecEngines(self.n, mpiexec))
        return Processes(*profiles.from_profile(self._profile, self.n, mpiexec))

    def _begin(self) -> None:
        """Start the controller and the engines; once more if the controller ends meanwhile, as without a port."""
        try:
            self._begin_once()
        except Exception:
            processes = self._processes
            if processes is None or not processes.ended_by_chance(self.n):
                raise
            sentences(f"Note: the engines' controller has ended, and starts again: {processes.log('controller', 1)}")
            self._end()
            self._client = None
            self._begin_once()

    def _begin_once(self) -> None:
        self._processes = processes = self._prepare()
        # Stop at the latest when the kernel exits; `lifeline` covers a killed kernel.
        self._finalizer = weakref.finalize(self, processes.stop)
        processes.start_template()  # it takes longest
        processes.start_controller()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as: this machine's name has no address
            import ipyparallel  # slow, but meanwhile the controller starts

            processes.start_engines()
            self._client = ipyparallel.Client(processes.connection("client"), profile_dir=str(self.directory))
        self._meet_engines()

    def _meet_again(self) -> None:
        """Wait for engines that replace others; start them once more if they fail, as on a host that was down."""
        if self._launched and not self._started_processes.engines.why_ended():
            with contextlib.suppress(ClusterError):
                return self._meet_engines()
        self._replace_engines()
        self._launched = False
        self._meet_engines()

    def _replace_engines(self) -> None:
        """End all engines and start others; the next run waits for them."""
        self.restarting, self._launched = True, False
        self._started_processes.stop_engines()
        self._started_processes.start_engines()
        self._launched = True

    def _meet_engines(self) -> None:
        """Wait for the engines, identify each, and sort them by rank."""
        ids = self._wait_for_ids()
        from hpcdl.cluster import engine

        views = [self._client.direct_view(i, block=False) for i in ids]
        answers = [view.apply_async(engine.identify) for view in views]
        people = [answer.get(START_SECONDS) for answer in answers]
        here = lifeline.machine()
        self._started_processes.shared_memory |= {
            file for person in people if person["machine"] == here for file in person["shared_memory"]
        }
        self._check_one_world(people)
        self._started_processes.engines.confirm()
        self._known |= set(ids)
        self._warming_up = [view.apply_async(engine.warm_up) for view in views]
        order = sorted(range(self.n), key=lambda i: people[i]["rank"])
        self.engines = [
            Engine(
                views[i],
                people[i]["host"],
                people[i]["name"],
                psutil.Process(people[i]["pid"]) if people[i]["machine"] == here else None,
            )
            for i in order
        ]
        self.restarting, self.clean = False, True

    def _wait_for_ids(self) -> list[int]:
        """Wait for the newest engines and return ipyparallel's ids for them; say how many are up."""
        processes, begin = self._started_processes, time.monotonic()
        engines = processes.engines
        for _ in until(engines.patience):
            present = self._client.ids
            # Minutes after an engine dies, the controller forgets it and reuses its number.
            self._known.intersection_update(present)
            ids = [i for i in present if i not in self._known]
            if len(ids) >= self.n:
                self._line.end(f"{self.n} engines are up")
                return ids
            self._line.say(f"Starting {self.n} engines: {len(ids)} are up")
            up = f"{len(ids)} of {self.n} engines started"
            if processes.controller_ended():
                raise ClusterError(f"the controller has ended:\n{processes.log('controller')}")
            if reason := engines.why_ended():
                raise ClusterError(f"{reason}\n{processes.log('engines')}".rstrip())
            late = time.monotonic() > begin + FIRST_ERROR and not engines.elsewhere
            if late and (error := processes.first_error()):
                raise ClusterError(f"{up} within {FIRST_ERROR} s; {engines} said: {error}")
        raise ClusterError(f"{up} within {engines.patience} s:\n{processes.log('engines')}")

    def _check_one_world(self, people: list[dict]) -> None:
        if any(person["size"] != self.n for person in people):
            library, engines = short(people[0]["library"]), self._started_processes.engines
            raise ClusterError(
                f"the engines do not know of each other: mpi4py uses {library}, but they were started by {engines}. "
                f"Use the launcher of the same MPI; this installs both: {MEND}"
            )

    def _warn_if_oversubscribed(self) -> None:
        if self.n <= cores():
            return
        message = (
            f"{self.n} engines share {cores()} core{'s' * (cores() > 1)}: everything works, but they take turns, "
            f"so that more than {cores()} of them are not faster"
        )
        if hasattr(get_ipython(), "kernel"):
            sentences(f"Note: {message}.")  # a notebook shows warnings in red, and this is only information
        else:
            warnings.warn(message, OversubscribedWarning, stacklevel=4)

    # -- runs -------------------------------------------------------------------------------------------------------

    def run(self, f: Callable, *args: Any, timeout: float = 60) -> list[Any]:
        """Call `f(comm, *args)` on every rank and return the results in rank order.

        Raises ClusterError when a rank raises, dies, or has not returned after `timeout` seconds. If another thread's
        run is in progress, it says so and waits; the timeout counts from the start of this run.
        """
        return self.stream(f, *args, timeout=timeout).wait()

    def stream(self, f: Callable, *args: Any, timeout: float = 60, meanwhile: Callable[[], None] | None = None) -> Run:
        """Like `run`, but iterate over values that the ranks publish while they run; afterwards read `.results`.

        While another thread's run is in progress, `meanwhile` is called ten times a second instead of printing a
        sentence; it may raise.
        """
        if not callable(f):
            raise TypeError(f"Cluster: f is {f!r}; it must be a function f(comm, *args)")
        if not timeout > 0:
            raise ValueError(f"Cluster: timeout is {timeout!r}; it is a number of seconds above 0")
        return self._turns.begin(lambda: self._begun(f, args, timeout), meanwhile)

    def _begun(self, f: Callable, args: tuple, timeout: float) -> Run:
        self.start()
        for answer in self._warming_up:
            answer.wait(START_SECONDS)
        self._runs += 1
        return Run(self, self._runs, f, args, timeout)

    def finished(self, reports: Sequence[RankReport]) -> None:
        """Finish a run: note whether it left messages behind, and replace engines that died or do not answer."""
        self.clean = all(report.end == "returned" for report in reports)
        self.failures += not self.clean
        if any(report.end in ("died", "silent") for report in reports) and not self.stopped:
            with contextlib.suppress(OSError, ClusterError):  # the run's own error matters more; the next run says this
                self._replace_engines()

    def black_box(self, rank: int) -> dict:
        """Return the last report of `rank`'s watcher in the current run."""
        return watcher.read(self.directory, self.engines[rank].name, self._runs)
