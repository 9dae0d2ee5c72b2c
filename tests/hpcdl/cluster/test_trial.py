"""`hpcdl cluster` speaks in sentences, and ends as an error would when it is told to end."""

import os
import signal
import time
import warnings
from contextlib import ExitStack

import pytest

from hpcdl.cluster import OversubscribedWarning, trial
from hpcdl.cluster.trial import _ended_by_sigterm


class Ready:
    """Stands for a cluster that starts at once, with a warning."""

    def __init__(self, n, profile):
        warnings.warn(f"{n} engines share 2 cores: they take turns", OversubscribedWarning, stacklevel=2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, f):
        return [{"host": "here", "threads": 1, "sum": 1.0, "slurm_job": None}]


def test_a_warning_is_a_note_without_the_path_of_the_code(monkeypatch, capsys):
    monkeypatch.setattr(trial, "Cluster", Ready)
    trial.try_cluster(3, None)
    assert capsys.readouterr().err == "Note: 3 engines share 2 cores: they take turns.\n"


def test_sigterm_unwinds_and_is_the_callers_again_afterwards():
    before, unwound = signal.getsignal(signal.SIGTERM), []

    def told_to_end():
        with _ended_by_sigterm(), ExitStack() as stack:
            stack.callback(unwound.append, True)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with pytest.raises(SystemExit) as ended:
        told_to_end()
    assert ended.value.code == 128 + signal.SIGTERM
    assert unwound
    assert signal.getsignal(signal.SIGTERM) is before
