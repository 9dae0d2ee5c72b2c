"""The thread that watches a rank leaves the rank's memory as it is."""

import sys
import threading
from types import FrameType

from hpcdl.cluster import watcher


def test_no_frame_is_held_while_a_file_is_written(monkeypatch, tmp_path):
    """A frame keeps the tensors of a function that has returned meanwhile, and the meter counts them."""
    monkeypatch.setenv(watcher.DIRECTORY, str(tmp_path))
    held, written = [], threading.Event()

    def write(*arguments, **options):
        frame = sys._getframe(1)
        while frame is not None:
            held.extend(name for name, value in frame.f_locals.items() if isinstance(value, FrameType))
            frame = frame.f_back
        written.set()

    monkeypatch.setattr(watcher, "write_whole", write)
    looking = watcher.Watcher()
    threading.Thread(target=looking._watch, daemon=True).start()
    with looking.watching(run=1, timeout=60):
        assert written.wait(60)
    assert held == []


def test_a_box_of_another_run_says_nothing(monkeypatch, tmp_path):
    """Of an earlier run of this rank, or of a rank that had the same number on the same host before a reboot."""
    monkeypatch.setenv(watcher.DIRECTORY, str(tmp_path))
    rank = watcher.Watcher()
    rank._run = 1
    rank._write([], False, "os._exit(3)")
    assert watcher.read(tmp_path, watcher.name(), 1)["end"] == "os._exit(3)"
    assert watcher.read(tmp_path, watcher.name(), 2) == {}
    watcher.Watcher()
    assert watcher.read(tmp_path, watcher.name(), 1) == {}
