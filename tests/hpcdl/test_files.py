"""A file is written whole or not at all: an interruption leaves the old one, and nothing next to it."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from hpcdl.files import write_whole, written_whole

KILLED = """
import os, signal, sys
from hpcdl.files import written_whole
with written_whole(sys.argv[1]) as file:
    file.write("half of the new")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_text_and_bytes_come_back_as_they_were(tmp_path):
    write_whole(tmp_path / "text", "ä – β\n")
    write_whole(str(tmp_path / "bytes"), b"\x00\xff", durable=False)
    assert (tmp_path / "text").read_text(encoding="utf-8") == "ä – β\n"
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bytes", "text"]


def test_an_error_leaves_the_old_file_alone(tmp_path):
    (tmp_path / "state").write_text("old")
    with pytest.raises(TypeError), written_whole(tmp_path / "state") as file:
        file.writelines(["half of the new", None])
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("state", "old")]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_writer_that_is_killed_leaves_the_old_file(tmp_path):
    (tmp_path / "state").write_text("old")
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "state"], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (tmp_path / "state").read_text() == "old"


def test_the_name_is_taken_at_the_end(tmp_path):
    with written_whole(tmp_path / "state") as file:
        file.write("new")
        file.flush()
        assert not (tmp_path / "state").exists()
    assert (tmp_path / "state").read_text() == "new"


def test_on_the_disk_before_the_name_is_taken(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: order.append((tmp_path / "state").exists()))
    write_whole(tmp_path / "state", "new")
    write_whole(tmp_path / "other", "new", durable=False)
    assert order == [False]


def test_readers_never_see_a_mixture(tmp_path):
    path, contents = tmp_path / "state", [letter * 5000 for letter in "abcd"]
    write_whole(path, contents[0])
    writers = [
        threading.Thread(target=lambda text=text: [write_whole(path, text, durable=False) for _ in range(100)])
        for text in contents
    ]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(path.read_text())
    assert seen <= set(contents)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_full_disk_is_an_error_of_the_system_under_torch_too(tmp_path):
    """torch.save closes its archive although a write failed, and reports only that."""

    def save(file):
        try:
            raise OSError(28, "No space left on device")
        finally:
            raise RuntimeError("unexpected pos 64 vs 0")

    def write():
        with written_whole(tmp_path / "x", "wb") as file:
            save(file)

    with pytest.raises(OSError, match="No space left") as raised:
        write()
    assert raised.value.filename == str(tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_named_as_its_caller_named_it(tmp_path):
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").write_text("kept")
    for path, error in (("absent/a", FileNotFoundError), ("file/a", NotADirectoryError), ("folder", IsADirectoryError)):
        with pytest.raises(error) as raised:
            write_whole(tmp_path / path, "new")
        assert (raised.value.filename, raised.value.filename2) == (str(tmp_path / path), None)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "inner"], "no part is left"
