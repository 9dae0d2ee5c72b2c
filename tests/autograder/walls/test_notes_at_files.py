"""What the kernel stores about files is not a student's to change, since all ranks and the grader see it."""

import os
from pathlib import Path

import pytest

import hpcdl
from autograder import doctor
from autograder.walls import sandbox

walled = pytest.mark.skipif(sandbox.tier() == "weak", reason=f"no sandbox on this system: {doctor.needs()}")

NOTES = """
import fcntl, os, pathlib, struct
FLAGS, VERSION, HINT = 0x40086602, 0x40087602, 1036  # commands of ioctl and fcntl
NUMBER = struct.pack("Q", 3)
WAYS = {
    "mode": lambda path, fd: os.chmod(path, 0o600),
    "mode of a descriptor": lambda path, fd: os.fchmod(fd, 0o600),
    "owner": lambda path, fd: os.chown(path, os.getuid(), os.getgid()),
    "times": lambda path, fd: os.utime(path, ns=(5, 5)),
    "time of now": lambda path, fd: os.utime(path),
    "times of a descriptor": lambda path, fd: os.utime(fd, ns=(5, 5)),
    "attribute": lambda path, fd: os.setxattr(path, "user.note", b"5"),
    "attribute of a descriptor": lambda path, fd: os.setxattr(fd, "user.note", b"5"),
    "flags": lambda path, fd: fcntl.ioctl(fd, FLAGS, NUMBER),
    "version": lambda path, fd: fcntl.ioctl(fd, VERSION, NUMBER),
    "hint": lambda path, fd: fcntl.fcntl(fd, HINT, NUMBER),
}
def leave(path):
    "Leave a note at a file in each way; return the ways that were refused."
    fd, refused = os.open(path, os.O_RDONLY), []
    for name, way in WAYS.items():
        try:
            way(path, fd)
        except OSError:
            refused.append(name)
    return sorted(refused)
def hint(path):
    return fcntl.fcntl(os.open(path, os.O_RDONLY), HINT - 1, bytes(8))
def forget(path):
    "Tell the kernel that a file's parts need not stay in memory."
    os.posix_fadvise(os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
def own():
    with open("mine.sh", "w") as file:
        file.write("mine")
    os.chmod("mine.sh", 0o700)
    os.utime("mine.sh", (5, 5))
    pathlib.Path("new").touch()
    pathlib.Path("new").touch()
    assert os.path.exists("new")
    return open("mine.sh").read()
"""


def is_in_memory(path):
    with open(path, "rb", buffering=0) as file:
        try:
            return os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False


@walled
@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="Linux alone tells whether a file is in memory")
def test_no_file_leaves_memory(remote):
    """Another rank would notice, by the time that it waits for the disk."""
    path = str(Path(hpcdl.__file__).parent / "cluster/engine.sh")
    Path(path).read_bytes()
    session = remote(NOTES)
    session.start_check(20)
    session.student.forget(path)
    assert is_in_memory(path)


@walled
def test_a_file_cannot_carry_a_note(remote):
    """Ranks read the same libraries: what the kernel stores about those files is not theirs to change."""
    session = remote(NOTES)
    session.start_check(20)
    path = Path(hpcdl.__file__).with_name("py.typed")
    before = path.stat()
    refused = session.student.leave(str(path))
    after = path.stat()
    assert {"attribute", "attribute of a descriptor", "flags", "version", "hint"} <= set(refused)
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (before.st_mode, before.st_uid, before.st_mtime_ns)
    assert session.student.own() == "mine"  # honest code continues as if it had changed them
