"""What can be asked across the boundary is a closed list: each side serves the verbs of its table, and no others."""

import pytest

from autograder.boundary import verbs
from autograder.boundary.protocol import Frame
from autograder.inside.socket_worker import SocketWorker
from autograder.inside.worker import Worker
from autograder.sessions.grader import Grader
from autograder.sessions.local import LocalGrader, LocalWorker
from autograder.sessions.socket_grader import SocketGrader


def test_each_side_serves_what_is_written_down():
    for side in (Worker, SocketWorker, LocalWorker):
        assert set(side.verbs) == set(verbs.WORKER)
    for side in (Grader, SocketGrader, LocalGrader):
        assert set(side.verbs) == set(verbs.GRADER)


STRANGE = [
    ["execute", ""],
    ["name", "f"],
    ["operator", "getattr"],
    ["yours", 1],
    ["", ""],
    [None, 1],
    [[], {}],
    "name",
    7,
]


@pytest.mark.parametrize("target", STRANGE, ids=str)
def test_grader_acts_only_on_its_own_verbs(target):
    answer = Grader().serve(Frame(["call", target, ["tuple"], ["tuple"], False, None, 5]))
    assert answer.header[0] == "error"
    assert answer.header[1]["type"] in ("ProtocolError", "TypeError")
    assert answer.header[-1] == 5
