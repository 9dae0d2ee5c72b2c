"""What a lab's cell says while a student's function behind it is to be written, or a guess to be made."""

import contextlib
import traceback

from hpcdl.comm import RankError


class Waiting(Exception):  # noqa: N818 - no error: something is still to be done
    """A cell cannot run yet, and the text says what to do first."""


@contextlib.contextmanager
def when_solved():
    """Run the block; where it meets an unsolved exercise, or a guess not made, print a sentence and no traceback.

        with when_solved():
            plt.plot(gradient_descent(grad, w0, lr=0.1, steps=20))

    Any other exception passes: it is a mistake, and its traceback says where.
    """
    try:
        yield
    except Waiting as waiting:
        print(waiting)
    except NotImplementedError as error:
        print(waiting_for(error))
    except RankError as error:  # one of several ranks met it
        if not isinstance(error.__cause__, NotImplementedError):
            raise
        print(waiting_for(error.__cause__))


def waiting_for(error: NotImplementedError) -> str:
    """The sentence that names the unsolved function."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    unsolved = frame.f_code.co_qualname  # `Dual.log` says more than `log`
    return f"Waiting for your {unsolved}: solve its exercise above, run its cell, then run this one again."
