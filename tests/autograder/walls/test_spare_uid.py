"""Root gives itself up for a user id that owns nothing, wherever others may read Python's files.

They may not where Python lies in root's own home. Then a mount namespace opens it, in which this file runs itself.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autograder.sessions import canaries
from autograder.sessions.errors import StudentError
from autograder.sessions.remote import RemoteSession
from autograder.walls import sandbox
from autograder.walls.zygote import Zygote

CODE = "import os\n\ndef who():\n    return os.getuid(), os.geteuid(), os.getgid(), os.getgroups()\n" + canaries.ATTACKS


def found() -> dict:
    """Who a worker without other walls is, what it may do to root's processes and files; what the canaries broke."""
    with Zygote("weak") as zygote, tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as private:
        attempts = {"who": (), "signal_to": (os.getpid(),), "read": (private.name,)}
        with RemoteSession(zygote, [("cell", CODE)], folder) as session:
            said = {name: outcome(session, name, args) for name, args in attempts.items()}
    if sandbox.tier() == "weak":
        return said
    sandbox.tier = lambda: "restricted"
    with Zygote() as zygote:
        return {**said, "broken": [finding.title for finding in canaries.attack(zygote) if not finding.held]}


def outcome(session: RemoteSession, name: str, args: tuple):
    session.start_check(20)
    try:
        return getattr(session.student, name)(*args)
    except StudentError as error:
        return error.type


@pytest.fixture(scope="module")
def seen():
    if os.name != "posix" or os.geteuid():
        pytest.skip("only root can become another user")
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=200, check=False)
    if "unshare" in done.stderr:
        pytest.skip("Python's files are closed to others, and this system lets root mount nothing")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.labs
def test_a_worker_is_nobody_and_has_no_power_over_what_is_roots(seen):
    uid, *same, groups = seen["who"]
    assert uid in sandbox.SPARE_UIDS
    assert same == [uid, uid]
    assert groups == []
    assert seen["read"] == seen["signal_to"] == "PermissionError"


@pytest.mark.labs  # every canary behind every wall: half a minute
def test_the_walls_of_a_default_container_hold_with_it(seen):
    if "broken" not in seen:
        pytest.skip("no sandbox on this system")
    assert seen["broken"] == []


if __name__ == "__main__":
    if not sandbox.spare_uid():
        from open_house import open_to_all  # this folder is the script's

        open_to_all(Path(sys.executable).resolve())
    assert sandbox.spare_uid() in sandbox.SPARE_UIDS
    print(json.dumps(found()))
