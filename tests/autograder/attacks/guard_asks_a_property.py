# own_stack.ring: 0 points, long
# A class by the name of Python's functions is asked for its code, and runs code of its own.
import sys

found = []


class function:  # noqa: N801 - the name is the attack
    @property
    def __code__(self):
        found.append(sys._getframe(1))


def ring_all_reduce(x, comm):
    import hpcdl.collectives.ring as library

    function().__class__ = type("Other", (function,), {})
    frame = found[0]
    while frame:
        owner = frame.f_locals.get("self")
        if hasattr(owner, "guard"):
            owner.guard.is_up = False
        frame = frame.f_back
    library.ring_all_reduce(x, comm)
