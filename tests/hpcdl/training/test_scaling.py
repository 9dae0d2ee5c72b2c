"""What the cost model predicts for a training on p ranks of these engines."""

import pytest

from hpcdl.training import scaling
from hpcdl.training.live import Settings


def records(total):
    spans = [("load", 0, 0.0), ("forward", 0.0, 0.3 * total), ("backward", 0.3 * total, 0.9 * total)]
    return [{"total": total, "spans": [*spans, ("wait", 0.9 * total, total)]}] * 3


def test_the_prediction_is_the_ranks_own_time_where_messages_cost_nothing(monkeypatch):
    monkeypatch.setattr(scaling, "cores", lambda: 2)
    free = scaling.Fit(0.0, 0.0, 0.0)
    for p, turns in ((1, 1), (2, 1), (4, 2)):
        assert scaling.predicted(p, records(0.01), Settings(), free) == pytest.approx(turns * 0.01)


def test_messages_cost_in_full_without_overlap(monkeypatch):
    monkeypatch.setattr(scaling, "cores", lambda: 2)
    link, settings = scaling.Fit(0.001, 0.0, 0.0), Settings(overlap=False, bucket_mb=1.0)
    assert scaling.predicted(2, records(0.01), settings, link) == pytest.approx(0.01 + 2 * 0.001)
