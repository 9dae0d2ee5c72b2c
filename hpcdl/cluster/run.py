"""One run: the user's function on every rank, followed until every rank has ended, normally or not."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle
import ipyparallel
from IPython.display import publish_display_data

from hpcdl.cluster import engine, watcher
from hpcdl.cluster.deadlock import Lookout
from hpcdl.cluster.diagnosis import ClusterError, RankReport, StoppedRunError, diagnose
from hpcdl.cluster.processes import folder
from hpcdl.saying import StatusLine

if TYPE_CHECKING:
    from hpcdl.cluster.cluster import Cluster

COMPANY_SECONDS = 0.3  # how long ranks may continue after one has failed: often they fail in the same way
LOOK_SECONDS = 0.3  # between searches for ranks that wait for each other
GRACE_SECONDS = 1.5  # how long a rank may take to stop
IMPORT_SECONDS = 10.0  # extra time during an import: an interrupted module could not be imported again
INTERRUPTED = "You stopped this run: its ranks have stopped too. It can be run again."
STOPPED = "the engines were stopped while they worked"
GONE = "EngineError"  # ipyparallel's answer for an engine that has ended, perhaps on another machine
OUTPUT_SECONDS = 10.0  # how long an engine's output may arrive after its answer


class Record(NamedTuple):
    """A value that a rank published, `seconds` after the rank's start."""

    rank: int
    seconds: float
    value: Any


class Lost:
    """The answer of an engine that ipyparallel no longer knows: it ended between two runs."""

    def __init__(self):
        self.metadata = {"data": {}, "stdout": "", "stderr": "", "outputs": []}

    def ready(self) -> bool:
        return True

    def successful(self) -> bool:
        return False

    def wait_for_output(self, _seconds: float) -> None:
        """Return at once: there is no output."""

    def get(self, _seconds: float) -> dict:
        raise ipyparallel.error.EngineError("it has ended")


def _asked(view: Any, *call: Any) -> Any:
    """Return the future answer of an engine."""
    try:
        return view.apply_async(*call)
    except (IndexError, ipyparallel.error.NoEnginesRegistered):
        return Lost()


def packed(f: Callable, args: tuple) -> bytes:
    """Return a call as bytes for the ranks; raise TypeError that names the argument which cannot leave this process."""
    try:
        return cloudpickle.dumps((f, args))
    except Exception as error:
        kept = [f"argument {i}, a {type(x).__name__}," for i, x in enumerate(args) if not _is_sendable(x)]
        what = kept[0] if kept else "the function, or what it uses,"
        raise TypeError(f"{what} cannot be sent to the ranks: {error}; make it in the function that runs") from error


def _is_sendable(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


class Run:
    """Iterates over the records that ranks publish; afterwards `results` holds their return values by rank.

    Raises ClusterError if a rank raised, hung or died. Leaving the iteration early stops the ranks.
    """

    def __init__(self, cluster: "Cluster", number: int, f: Callable, args: tuple, timeout: float):
        self.cluster, self.number, self.timeout = cluster, number, timeout
        self.results: list[Any] | None = None
        self.thread, self._ended = threading.current_thread(), False
        payload = packed(f, args)
        path = [entry for entry in sys.path if entry]
        call = (engine.call, payload, number, timeout, cluster.clean, folder(cluster.directory), path)
        self._answers = [_asked(member.view, *call) for member in cluster.engines]
        self._reports: list[RankReport | None] = [None] * len(self._answers)
        self._seen = [0] * len(self._answers)
        self._shown = [0] * len(self._answers)
        self._printed = [{"stdout": 0, "stderr": 0} for _ in self._answers]
        self._cancelled: float | None = None
        self._lookout, self._looked, self._deadlocked = Lookout(), 0.0, False
        self._line: StatusLine | None = None
        self._started = time.monotonic()
        self._records = self._follow()

    def __iter__(self):
        return self._records

    def wait(self) -> list[Any]:
        """Follow the ranks to their end, and return their results; if it takes long, a line says how far they are."""
        self._line = StatusLine()
        try:
            for _ in self:
                pass
        finally:
            self._line.clear()
        assert self.results is not None  # otherwise it has raised
        return self.results

    @property
    def at_work(self) -> bool:
        """Return whether ranks may still work for this run; a run that is no longer followed ends with its ranks."""
        return not (self._ended or self.cluster.stopped or all(answer.ready() for answer in self._answers))

    def _follow(self):
        try:
            yield from self._records_of_ranks()
        except Exception:
            if self.cluster.stopped:  # by another thread; requests to the engines then failed
                raise ClusterError(STOPPED) from None
            raise
        except KeyboardInterrupt:
            raise StoppedRunError(INTERRUPTED) from None
        finally:
            self._ended = True

    def _records_of_ranks(self):
        try:
            while not self._over():
                yield from self._news()
                self._say_how_far()
                self._wait_a_little()
            for answer in self._answers:
                if answer.ready():  # a rank's output may arrive after its result, on a busy machine much later
                    answer.wait_for_output(OUTPUT_SECONDS if answer.successful() else 1)
            yield from self._news(last=True)
        finally:  # also when the iteration is left early, or by Ctrl-C
            self._stop_ranks()
            reports = [report for report in self._reports if report is not None]  # one per rank: the run is over
            self.cluster.finished(reports)
        if [report.end for report in reports] == ["returned"] * len(self._answers):
            self.results = [cloudpickle.loads(report.value) for report in reports]
        elif self.cluster.stopped:
            raise ClusterError(STOPPED)
        else:
            raise ClusterError(diagnose(reports, self.timeout, self.cluster.restarting, self._deadlocked), reports)

    def _stop_ranks(self) -> None:
        """Follow the ranks to their end, at most a few seconds, even if the user presses ■ again."""
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                while not (self.cluster.stopped or self._over(stopping=True)):
                    self._wait_a_little()
                return

    # -- how it goes ------------------------------------------------------------------------------------------------

    def _over(self, stopping: bool = False) -> bool:
        """Check every rank; stop the others once one has failed; return True when the run is over."""
        now = time.monotonic()
        for rank, answer in enumerate(self._answers):
            if self._reports[rank] is None:
                self._reports[rank] = self._look_at(rank, answer)
        missing = [rank for rank, report in enumerate(self._reports) if report is None]
        if not missing:
            return True
        failed = any(report is not None and report.end != "returned" for report in self._reports)
        late = now > self._started + self.timeout or self._sees_deadlock(missing, now)
        if self._cancelled is None and (stopping or failed or late):
            self._cancelled = now + (COMPANY_SECONDS if failed and not stopping else 0)
        if self._cancelled is not None and now > self._cancelled:
            watcher.cancel_flag(self.cluster.directory, self.number).touch()
        if self._cancelled is not None and now > self._cancelled + self._grace(missing):
            for rank in missing:
                self._reports[rank] = RankReport.silent(rank, self.cluster.black_box(rank))
            return True
        return False

    def _grace(self, missing: list[int]) -> float:
        """Return the seconds that the `missing` ranks get after the request to stop."""
        importing = any(self.cluster.black_box(rank).get("importing") for rank in missing)
        return GRACE_SECONDS + importing * IMPORT_SECONDS

    def _sees_deadlock(self, missing: list[int], now: float) -> bool:
        if self._cancelled is None and now > self._looked + LOOK_SECONDS:
            self._looked = now
            boxes = {rank: self.cluster.black_box(rank).get("waiting") for rank in missing}
            waiting = {rank: situation for rank, situation in boxes.items() if situation}
            returned = {rank for rank, report in enumerate(self._reports) if report and report.end == "returned"}
            self._deadlocked = self._lookout.sees_deadlock(waiting, returned, now)
        return self._deadlocked

    def _look_at(self, rank: int, answer) -> RankReport | None:
        if answer.ready():
            try:
                return RankReport.answered(rank, answer.get(0))
            except ipyparallel.error.RemoteError as error:  # the engine, not the user's function, failed
                if error.ename != GONE:
                    return RankReport.answered(rank, {"end": "raised", "stack": [], "error": str(error)})
            except Exception:
                pass  # ipyparallel reports that the engine is gone
        elif self.cluster.engines[rank].alive():
            return None
        return RankReport.dead(rank, self.cluster.black_box(rank))

    def _wait_a_little(self):
        pending = next((answer for answer in self._answers if not answer.ready()), None)
        if pending is not None:
            pending.wait(0.02)

    # -- what ranks say ---------------------------------------------------------------------------------------------

    def _say_how_far(self) -> None:
        if self._line is not None:
            returned = len(self._reports) - self._reports.count(None)
            self._line.say(f"Running on {len(self._reports)} engines: {returned} have returned")

    def _news(self, last: bool = False):
        records = []
        for rank, answer in enumerate(self._answers):
            said = answer.metadata
            said = said[0] if isinstance(said, list) else said
            while self._seen[rank] + 1 in said["data"]:
                self._seen[rank] += 1
                seconds, value = cloudpickle.loads(said["data"].pop(self._seen[rank]))
                records.append(Record(rank, seconds, value))
            for stream in ("stdout", "stderr"):
                self._print(rank, stream, said[stream] or "", last)
            self._show(rank, said["outputs"])
        return sorted(records, key=lambda record: record.seconds)

    def _print(self, rank, stream, text, last):
        """Print new output in whole lines, each labelled with its rank."""
        new = text[self._printed[rank][stream] :]
        end = len(new) if last else new.rfind("\n") + 1
        self._printed[rank][stream] += end
        for line in new[:end].splitlines():
            print(f"[rank {rank}] {line}", file=getattr(sys, stream))

    def _show(self, rank, outputs):
        """Show a rank's new pictures."""
        for output in outputs[self._shown[rank] :]:
            self._shown[rank] += 1
            print(f"[rank {rank}]")
            publish_display_data(output["data"], output["metadata"])

    def close(self) -> None:
        """Stop the ranks if they still run."""
        with contextlib.suppress(ClusterError):
            self._records.close()
