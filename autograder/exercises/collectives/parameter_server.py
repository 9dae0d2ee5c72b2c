"""The all-reduce over parameter servers. Oracle: the sum, and what each rank sends."""

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import (
    FEW,
    SECONDS,
    and_others,
    carried,
    either_numbers,
    has_sum_everywhere,
    numbers,
    one_of,
    sends,
    small_numbers,
)
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import MACHINES_COLLECTIVES, RANKS
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "parameter_server_all_reduce",
    points=15,
    minutes=15,
    forbid=(*MACHINES_COLLECTIVES, *RANKS),
    instead="Write it with the messages between ranks: send, recv, isend, irecv, sendrecv.",
)


def servers_have_sum(student, xs: list, servers: int, **machine):
    """Run it on `xs`, by rank, with so many servers; every rank ends with the sum."""
    setting = f"p = {len(xs)}, servers = {servers}, n = {xs[0].numel()}"
    return has_sum_everywhere(student, "parameter_server_all_reduce", xs, setting, {"servers": servers}, **machine)


@exercise.check(points=3, seconds=SECONDS)
def one_server(student, rng):
    "One server: the sum on every rank, for p = 1 to 9."
    for p in FEW:
        servers_have_sum(student, numbers(p, 3, rng), 1)
    p = one_of((2, 3, 4, 5), rng)
    carried(student, rng, lambda: servers_have_sum(student, numbers(p, 3, rng), 1), f"p = {p}, servers = 1")


@exercise.check(points=4, seconds=SECONDS, needs="one_server")
def several_servers(student, rng):
    "1 to p servers, even more servers than elements."
    for p, servers, n in ((2, 2, 7), (3, 2, 7), (5, 2, 7), (5, 4, 7), (6, 3, 7), (6, 6, 7), (3, 3, 1), (5, 4, 1)):
        run = servers_have_sum(student, numbers(p, n, rng), servers)
        heard = {(event.rank, event.peer) for event in sends(run)}
        pairs = [(rank, server) for server in range(min(servers, n)) for rank in range(p) if rank != server]
        unheard = [pair for pair in pairs if pair not in heard]
        alone = all(0 in pair for pair in heard)
        checks.that(
            not unheard,
            f"p = {p}, servers = {servers}, n = {n}: rank {unheard[0][0] if unheard else ''} sends nothing to rank "
            f"{unheard[0][1] if unheard else ''}, a server. Server j adds up share j of x: x.tensor_split(servers)[j]."
            + " Rank 0 is the only server: you ignore `servers`."
            * alone,
        )


@exercise.check(points=4, seconds=SECONDS, needs="several_servers")
def each_server_has_its_share(student, rng):
    "Workers talk only to servers, and each server handles its own share of x."
    drawn = [(p, whole_number(rng, 2, p), whole_number(rng, 40, 60)) for p in and_others(FEW[:6], rng, most=11)[6:]]
    for p, servers, n in ((6, 1, 48), (6, 2, 48), (8, 4, 48), (4, 4, 48), (5, 3, 46), (4, 3, 2), *drawn):
        run = servers_have_sum(student, either_numbers(p, n, rng), servers)
        setting = f"p = {p}, servers = {servers}" + f", n = {n}" * (n != 48)
        for event in sends(run):
            checks.that(
                min(event.rank, event.peer) < servers,
                f"{setting}: rank {event.rank} sends to rank {event.peer}, and neither is a server "
                f"(servers are ranks 0 to {servers - 1}).",
            )
        _shares(run, servers, setting)


def _shares(run, servers: int, setting: str) -> None:
    (x, *_), p = run.given[0], len(run.results)
    n, shares = x.nbytes, [share.nbytes for share in x.tensor_split(servers)]
    for rank, sent in enumerate(run.bytes_sent):
        expected = n if rank >= servers else n + (p - 2) * shares[rank]
        mistakes = {
            "Every server gets and sends the whole x. Server j needs share j: x.tensor_split(servers)[j].": servers
            * expected,
            "Rank 0 is the only server: you ignore `servers`.": (p - 1) * n if rank == 0 else -1,
        }
        if sent != expected:
            role = f"server {rank}" if rank < servers else f"worker {rank}"
            raise checks.CheckFailure(
                f"{setting}: {role} sends {sent} bytes for an x of {n}.",
                got=f"{sent} bytes",
                expected=f"{expected} bytes: its shares to their servers, and as a server its sum to all others",
                mistake=next((sentence for sentence, value in mistakes.items() if value == sent), ""),
            )


@exercise.check(points=4, seconds=SECONDS, needs="each_server_has_its_share")
def servers_work_at_once(student, rng):
    "k servers take about 1/k of one server's time: no rank queues at one while another is idle, or returns too early."
    run = servers_have_sum(student, small_numbers(5, 96, rng), 1, beta=1.0, harness="when")
    for event in sends(run):
        checks.that(
            event.end <= run.results[event.rank],
            f"p = 5, servers = 1: rank {event.rank} returns while its message to rank {event.peer} is still under "
            "way. The next change of x would change the message: wait() for each isend.",
            got=f"it returns at {run.results[event.rank]:g} byte times",
            expected=f"not before {event.end:g}",
        )
    waited_for(run, "p = 5, servers = 1")
    drawn = one_of((6, 7, 9, 10, 11), rng)  # each rank is a server: queues take 1.5 times as long, as on 8
    for p, servers in ((8, 2), (8, 4), (8, 8), (drawn, drawn)):
        n = 12 * servers if p == servers else 96
        run = servers_have_sum(student, either_numbers(p, n, rng), servers, beta=1.0)
        waited_for(run, f"p = {p}, servers = {servers}")
        ideal = 2 * (p - 1) * run.given[0][0].nbytes / servers
        checks.that(
            run.seconds <= 1.3 * ideal,
            f"p = {p}, servers = {servers}: it takes {run.seconds / ideal:.2g} times as long as p - 1 messages in and "
            "p - 1 out at each server. Some server waits while others are busy: let rank r send to r + d in round d, "
            "so that each server hears from a different rank in each round.",
            got=f"{run.seconds:.0f} byte times",
            expected=f"at most 1.3 · {ideal:.0f} = {1.3 * ideal:.0f} (2 (p-1) n / servers, a little more)",
        )
