"""Errors of a simulated run: who waits for whom, where a rank raised, which messages were never received."""

from itertools import chain

from hpcdl.comm.errors import CommError, DeadlockError, RankError
from hpcdl.comm.location import caller, lines_of_traceback
from hpcdl.comm.simulated.machine import SimulatedMachine
from hpcdl.comm.words import describe, size_of

SHOWN = 8  # ranks in a message: more would not fit on a screen


def deadlock(machine: SimulatedMachine) -> DeadlockError:
    """Describe a deadlock: which rank waits for which, and at which line."""
    returned = machine.turns.returned
    stuck = [rank for rank in range(machine.p) if not returned[rank]]
    stuck += [number for number in range(machine.p, len(machine.owners)) if machine.waiting[number]]
    lines = ["deadlock: every rank that has not returned waits for another."]
    lines += [_situation(machine, number) for number in stuck[:SHOWN]]
    if len(stuck) > SHOWN:
        lines.append(f"... and {len(stuck) - SHOWN} more ranks wait")
    if gone := [rank for rank in range(machine.p) if returned[rank]]:
        ranks = ", ".join(map(str, gone[:SHOWN])) + (", ..." if len(gone) > SHOWN else "")
        lines.append(f"rank{'s' * (len(gone) > 1)} {ranks} returned")
    return DeadlockError("\n".join(lines + _advice({_call(machine, number)[0] for number in stuck})))


def _situation(machine: SimulatedMachine, number: int) -> str:
    line = caller(machine.turns.stack(number))
    who = f"rank {machine.owners[number]}" + ("'s background" if number >= machine.p else "")
    return f"{who} waits in {describe(*_call(machine, number))}" + (f" at {line.shown()}" if line else "")


def _call(machine: SimulatedMachine, number: int) -> tuple:
    """Return the call in which it waits, as arguments of `describe`."""
    call = machine.waiting[number]
    assert call is not None  # only a wait stops a turn
    return call


def _advice(ops: set[str]) -> list[str]:
    if ops == {"send"}:
        return ["A send completes only when its receiver has posted the recv: use sendrecv, or let one side receive."]
    if ops == {"recv"}:
        return ["All of them receive and none sends: use sendrecv, or let one of them send first."]
    return []


def failure(rank: int, error: BaseException) -> CommError:
    """Return a rank's error with its line: the same CommError, or a RankError."""
    line = caller(lines_of_traceback(error.__traceback__))
    where = f" at {line.shown()}" if line else ""
    if isinstance(error, CommError):
        return type(error)(f"{error}{where}")
    found = RankError(f"rank {rank} raised {type(error).__name__}: {error}{where}", rank)
    found.__cause__ = error
    return found


def lost_message(machine: SimulatedMachine) -> CommError | None:
    """Describe a message with only one side posted when all ranks had returned, or return None."""
    lost = min(chain.from_iterable(machine.unmatched.values()), key=lambda message: message.side, default=None)
    if lost is None:
        return None
    did, undone = ("sent", "receiving") if lost.side == "dest" else ("expected", "sending")
    return CommError(
        f"rank {lost.comm.rank} {did} a message of {size_of(lost.x)} with "
        f"{describe(lost.op, (lost,)).removesuffix('.wait()')}, and rank {lost.peer} returned without {undone} it"
    )
