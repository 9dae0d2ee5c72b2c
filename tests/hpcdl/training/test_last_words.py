"""What a rank says before it aborts all ranks reaches the launcher's output."""

import os
import select
import threading
import time

from hpcdl.training.program import wait_until_read


def test_an_abort_waits_until_the_launcher_has_read_the_message():
    """mpiexec ends at once when a rank aborts, and loses what it has not read."""
    reader, writer = os.pipe()
    os.write(writer, b"FloatingPointError")
    launcher = threading.Timer(0.2, lambda: os.read(reader, 100))
    launcher.start()
    wait_until_read(writer, seconds=100)
    assert select.select([reader], [], [], 0) == ([], [], []), "some bytes are still unread"
    launcher.join()
    os.write(writer, b"read by no launcher")
    wait_until_read(writer, seconds=0.01)
    os.close(reader)
    os.close(writer)


def test_a_message_in_a_file_is_not_waited_for(tmp_path):
    with open(tmp_path / "log", "wb") as file:
        file.write(b"FloatingPointError")
        file.flush()
        file.seek(0)
        begin = time.monotonic()
        wait_until_read(file.fileno(), seconds=1000)
        assert time.monotonic() - begin < 100
