"""The student's code in this very process: what `check` of a notebook, and tests of checks, stand on."""

from .protocol import Frame
from .student import Grader, Session
from .worker import Worker


class LocalGrader(Grader):
    worker: "LocalWorker"

    def ask(self, frame: Frame) -> Frame:
        if frame.header[1][0] == "name":
            self.sent = frame
        return self.worker.serve(frame)


class LocalWorker(Worker):
    stops_on_interrupt = True  # the student's own press of the stop button

    def __init__(self, namespace: dict, grader: LocalGrader):
        super().__init__(namespace)
        self.grader = grader

    def ask(self, frame: Frame) -> Frame:
        with self.guard.up(False):
            return self.grader.serve(frame)


class LocalSession(Session):
    """The student's code in this process: the names of a notebook, a time limit, no isolation."""

    undefined = "Run the cell that defines it, then check again."

    def __init__(self, namespace: dict):
        super().__init__()
        self.grader = LocalGrader()
        self.worker = self.grader.worker = LocalWorker(namespace, self.grader)

    def begin(self, seconds: float, *, protected: bool = False) -> None:
        super().begin(seconds, protected=protected)
        self.worker.guard.forbid(self.forbidden)

    def forbid(self, patterns: tuple[str, ...]) -> None:
        super().forbid(patterns)
        self.worker.guard.forbid(patterns)
