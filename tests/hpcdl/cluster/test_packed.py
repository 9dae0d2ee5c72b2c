"""What cannot leave the notebook's process is named before any rank begins."""

import threading

import cloudpickle
import pytest

from hpcdl.cluster.run import packed

LOCK = threading.Lock()


def plain(comm, *args):
    return args


def test_a_call_crosses():
    f, args = cloudpickle.loads(packed(plain, (1, [2.0], {"a": plain})))
    assert f(None, *args)[:2] == (1, [2.0])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((1, LOCK), "argument 1, a lock, cannot be sent to the ranks: .*; make it in the function that runs"),
        (([LOCK],), "argument 0, a list, cannot be sent"),
        (((x for x in range(3)),), "argument 0, a generator, cannot be sent"),
    ],
)
def test_an_argument_that_stays_here_is_named(args, said):
    with pytest.raises(TypeError, match=said):
        packed(plain, args)


def test_what_a_function_uses_is_named():
    here = threading.Lock()
    with pytest.raises(TypeError, match="the function, or what it uses, cannot be sent"):
        packed(lambda comm: here, ())
