"""Downpour SGD over several servers. Oracles: serial Adagrad, a replay of each server's messages, the trace, time."""

import math

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried, sends, works
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import MACHINES_COLLECTIVES, RANKS, UPDATES
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "downpour",
    points=25,
    minutes=25,
    functions=("downpour", "replica", "shard_server"),
    forbid=(*MACHINES_COLLECTIVES, *RANKS, *UPDATES, "torch.optim.adagrad"),
    instead="Write servers and replicas yourself: send, recv, irecv and wait_any, and Adagrad in two lines.",
)

NUMBER = 8  # bytes
LATE = 0.1  # seconds, many latencies and much less than a gradient
A = 2.0  # gradients are A w + c


SENTENCES = {
    "last": "A push is the sum of all gradients since the last push, not the last one alone.",
    "mean": "A push is the sum of the gradients, not their mean.",
    "never zero": "After a push the sum starts at 0 again.",
    "rest lost": "Push the rest after the last step, too.",
    "never fetches": "The replica keeps its first weights: fetch before steps 0, n_fetch, 2 n_fetch, ...",
    "zero": "The sum of squares starts at 1 here, not at 0.",
    "sgd": "That is SGD: Adagrad divides by the root of the sum of squares.",
    "forgets": "The server keeps its sum of squares from one push to the next.",
    "after": "First add the square of the push, then divide by the root.",
}


def adagrad(w: torch.Tensor, squares: torch.Tensor, g: torch.Tensor, lr: float) -> tuple[torch.Tensor, torch.Tensor]:
    squares = squares + g * g
    return w - lr * g / squares.sqrt(), squares


class Training:
    """`servers` and some replicas; replica j's gradient in step k is A w + c[j][k] and takes seconds[j][k]."""

    def __init__(
        self, servers: int, replicas: int, rng, n_fetch: int, n_push: int, steps: int, n: int = 7, dtype=torch.float64
    ):
        self.servers, self.replicas, self.n_fetch, self.n_push, self.steps = servers, replicas, n_fetch, n_push, steps
        self.n, self.lr = n, whole_number(rng, 3, 6) / 16
        self.w = torch.randn(n, generator=rng).to(dtype)
        self.c = torch.randn(replicas, steps, n, generator=rng).to(dtype)
        self.seconds = (1 + torch.rand(replicas, steps, generator=rng)).tolist()
        self.fetches, self.pushes = math.ceil(steps / n_fetch), math.ceil(steps / n_push)
        self.setting = (
            f"{servers} server{'s' * (servers > 1)}, {replicas} replica{'s' * (replicas > 1)}, "
            f"n_fetch = {n_fetch}, n_push = {n_push}, {steps} steps"
        )

    def run(self, student, **machine):
        def arguments(rank: int):
            j = rank - self.servers
            rest = [self.w.clone(), self.servers, [self.n_fetch, self.n_push, self.steps, self.lr]]
            if j < 0:  # a server computes no gradients, and knows none
                return A, torch.zeros_like(self.c[0]), [0.0] * self.steps, *rest
            return A, self.c[j].clone(), list(self.seconds[j]), *rest

        return student.ranks("downpour", self.servers + self.replicas, arguments, harness="downpour", **machine)

    def serial(self, mistake: str = "") -> tuple[list[torch.Tensor], torch.Tensor]:
        """One replica without servers: the w that its gradients see, and the weights at the end."""
        here, there = self.w, self.w
        first = torch.zeros_like(self.w) if mistake == "zero" else torch.ones_like(self.w)
        squares, total, seen = first, torch.zeros_like(self.w), []
        for k in range(self.steps):
            if k % self.n_fetch == 0 and (mistake != "never fetches" or k == 0):
                here = there
            seen.append(here)
            g = A * here + self.c[0][k]
            total = g if mistake == "last" else total + g
            if (k + 1) % self.n_push == 0 or (k == self.steps - 1 and mistake != "rest lost"):
                if mistake == "sgd":
                    there = there - self.lr * total
                elif mistake == "mean":
                    there, squares = adagrad(there, squares, total / self.n_push, self.lr)
                elif mistake == "forgets":
                    there, squares = adagrad(there, torch.ones_like(squares), total, self.lr)
                elif mistake == "after":
                    there = there - self.lr * total / squares.sqrt()
                    squares = squares + total * total
                else:
                    there, squares = adagrad(there, squares, total, self.lr)
                if mistake != "never zero":
                    total = torch.zeros_like(total)
        return seen, there

    def agrees_with_serial(self, student) -> None:
        run, (right_seen, right) = self.run(student), self.serial()
        wrong = {sentence: self.serial(kind) for kind, sentence in SENTENCES.items()}
        seen = run.results[self.servers][1]
        checks.that(
            len(seen) == self.steps, f"{self.setting}: the replica computes {len(seen)} gradients, not {self.steps}."
        )
        name = f"{self.setting}: the w of gradient"
        for k, w in enumerate(seen):
            checks.tensor(w, name=f"{name} {k}", shape=(self.n,), dtype=self.w.dtype)
        expected = torch.stack(right_seen)
        named = {s: torch.stack(path) for s, (path, _) in wrong.items()}
        named = {s: path for s, path in named.items() if not torch.allclose(path, expected)}
        checks.close(torch.stack(seen), expected, name=f"{name}s 0 to {self.steps - 1}, row by row", mistakes=named)
        for rank, expected in enumerate(right.tensor_split(self.servers)):
            named = {s: w.tensor_split(self.servers)[rank] for s, (_, w) in wrong.items()}
            named = {s: w for s, w in named.items() if not torch.allclose(w, expected)}
            got, name = run.results[rank][0], f"{self.setting}: the shard of server {rank} at the end"
            checks.close(got, expected, name=name, mistakes=named)
        for server in range(self.servers):
            self.exchanged(run, self.servers, server)

    def agrees_with_messages(self, run) -> None:
        """Each server's shard at the end is what the pushes make of it that came, and each fetch has it as it was."""
        for rank, (_, seen) in enumerate(run.results):
            for k, w in enumerate(seen):
                name = f"{self.setting}: the w of replica {rank}'s gradient {k}"
                checks.tensor(w, name=name, shape=(self.n,), dtype=torch.float64)
        for server in range(self.servers):
            states, asked = self.replayed(run, server)
            name = f"{self.setting}: the shard of server {server} at the end"
            why = "Expected are the sums from the weights that the replicas had, applied as their messages came."
            checks.close(run.results[server][0], states[-1], name=name, why=why)
            for j, fetches in enumerate(asked):
                self.are_fetched(run, server, j, fetches, states)
        for rank in range(self.servers, self.servers + self.replicas):
            for server in range(self.servers):
                self.exchanged(run, rank, server)

    def has_worked(self, run) -> None:
        """Each replica's gradients have taken their time, and servers compute none."""
        works(run, [0.0] * self.servers + [sum(seconds) for seconds in self.seconds], self.setting)

    def exchanged(self, run, rank: int, server: int) -> None:
        """A replica has fetched from a server and pushed to it as often as n_fetch and n_push say."""
        lengths = [event.nbytes > 0 for event in sends(run) if (event.rank, event.peer) == (rank, server)]
        answers = sum((event.rank, event.peer) == (server, rank) for event in sends(run))
        pushes, fetches = sum(lengths), len(lengths) - sum(lengths)
        checks.that(
            (fetches, answers, pushes) == (self.fetches, self.fetches, self.pushes),
            f"{self.setting}: replica {rank} fetches from server {server} {fetches} times, gets {answers} shards, and "
            f"pushes {pushes} times; expected {self.fetches}, {self.fetches} and {self.pushes}. A fetch is an empty "
            "message and its answer, a push one message.",
        )

    def in_order_of_arrival(self, run) -> None:
        """No server receives a message while another one has waited there for long."""
        begun: dict[tuple[int, int], list[float]] = {}  # when the messages of a pair of ranks were sent, in turn
        for event in run.trace:
            if event.op == "send":
                begun.setdefault((event.rank, event.peer), []).append(event.start)
        for server in range(self.servers):
            waiting = {rank: begun.get((rank, server), [])[::-1] for rank in range(self.servers, len(run.results))}
            for event in run.trace:
                if event.op != "recv" or event.rank != server:
                    continue
                sent = waiting[event.peer].pop()
                for other, times in waiting.items():
                    checks.that(
                        not times or times[-1] > sent - LATE,
                        f"{self.setting}: server {server} receives what replica {event.peer} sent at {sent:.3f} s, and "
                        f"lets replica {other} wait, which sent at {min(times, default=0):.3f} s. Take messages in "
                        "order of arrival (wait_any).",
                    )

    def replayed(self, run, server: int) -> tuple[list[torch.Tensor], list[list[tuple[int, int]]]]:
        """A server's shard after 0, 1, ... pushes, in the order in which its trace says that they came; and by replica,
        for each of its fetches, the number of pushes before it and before the replica's next message.

        The weights that a replica saw are those that it had.
        """
        states, done = [self.w.tensor_split(self.servers)[server]], [0] * self.replicas
        squares, asked = torch.ones_like(states[0]), [list[tuple[int, int]]() for _ in done]
        now: dict[int, int] = {}  # pushes before a fetch, until the replica's next message
        for event in run.trace:
            if event.op != "recv" or event.rank != server:
                continue
            j = event.peer - self.servers
            if j in now:
                asked[j].append((now.pop(j), len(states) - 1))
            if not event.nbytes:
                now[j] = len(states) - 1
                continue
            g = self.pushed(run, j, done[j]).tensor_split(self.servers)[server]
            state, squares = adagrad(states[-1], squares, g, self.lr)
            states.append(state)
            done[j] += 1
        return states, asked

    def pushed(self, run, j: int, count: int) -> torch.Tensor:
        """Replica j's push after `count` others: the sum of its gradients since, at the weights that it saw."""
        rank, first = self.servers + j, count * self.n_push
        seen, steps = run.results[rank][1], range(first, min(first + self.n_push, self.steps))
        checks.that(
            len(seen) == self.steps and first < self.steps,
            f"{self.setting}: replica {rank} computes {len(seen)} gradients, not {self.steps}, or pushes "
            "more often than it has gradients for.",
        )
        return torch.stack([A * seen[k] + self.c[j][k] for k in steps]).sum(0)

    def are_fetched(self, run, server: int, j: int, fetches: list[tuple[int, int]], states: list[torch.Tensor]) -> None:
        """Replica j computes with the server's shard as it was when a fetch came, or before the next message."""
        rank = self.servers + j
        for k, w in enumerate(run.results[rank][1]):
            got = w.tensor_split(self.servers)[server]
            first, last = (fetches or [(0, 0)])[min(k // self.n_fetch, max(0, len(fetches) - 1))]
            if not any(checks.alike(got, state) for state in states[first : last + 1]):
                name = f"{self.setting}: server {server}'s shard in the w of replica {rank}'s gradient {k}"
                why = f"Server {server} had applied {first} pushes when it was asked: it sends its shard as it is."
                checks.close(got, states[first], name=name, why=why)


@exercise.check(points=7, seconds=SECONDS)
def one_replica_is_adagrad(student, rng):
    "One replica that fetches and pushes in every step is Adagrad on one machine, over 1 to 3 servers."
    for servers in (1, 2, 3):
        Training(servers, 1, rng, 1, 1, 4).agrees_with_serial(student)
    Training(2, 1, rng, 1, 1, 3, dtype=torch.float32).agrees_with_serial(student)
    carried(student, rng, lambda: Training(1, 1, rng, 1, 1, 4).agrees_with_serial(student), "1 server, 1 replica")


@exercise.check(points=6, needs="one_replica_is_adagrad", seconds=SECONDS)
def sums_between(student, rng):
    "With n_fetch and n_push: old weights between fetches, sums since the last push, and the rest at the end."
    for servers, n_fetch, n_push, steps in ((2, 1, 3, 6), (2, 3, 1, 5), (3, 2, 3, 7), (1, 4, 4, 9)):
        Training(servers, 1, rng, n_fetch, n_push, steps).agrees_with_serial(student)


@exercise.check(points=5, needs="sums_between", seconds=SECONDS)
def as_the_messages_came(student, rng):
    "Several replicas: each server applies the pushes in order of arrival."
    for servers, replicas, n_fetch, n_push in ((2, 2, 1, 1), (2, 3, 2, 2)):
        training = Training(servers, replicas, rng, n_fetch, n_push, 6)
        run = training.run(student, alpha=1e-3)
        training.has_worked(run)
        training.agrees_with_messages(run)
        training.in_order_of_arrival(run)


@exercise.check(points=4, needs="sums_between", seconds=SECONDS)
def bytes_by_n_fetch_and_n_push(student, rng):
    "A replica sends w's bytes once per push, and receives them once per fetch; it waits for each; w does not change."
    for servers, n_fetch, n_push in ((1, 1, 1), (2, 2, 3), (3, 3, 2)):
        training = Training(servers, 2, rng, n_fetch, n_push, 6, n=12)
        run, whole = training.run(student), 12 * NUMBER
        waited_for(run, training.setting)
        for _, _, _, w, *_ in run.arguments:
            checks.unchanged(w, training.w, name="w")
        for rank in range(servers, servers + 2):
            returned, seen = run.results[rank]
            name = f"{training.setting}: what replica {rank} returns"
            checks.that(bool(seen), f"{training.setting}: replica {rank} computes no gradient.")
            checks.close(returned, seen[-1], name=name, why="Return the last copy of w, which gave the last gradient.")
        for rank in range(servers, servers + 2):
            sent = sum(e.nbytes for e in sends(run) if e.rank == rank)
            came = sum(e.nbytes for e in sends(run) if e.peer == rank)
            for got, count, what in ((sent, training.pushes, "sends"), (came, training.fetches, "receives")):
                op = "push" if what == "sends" else "fetch"
                checks.that(
                    got == count * whole,
                    f"{training.setting}: replica {rank} {what} {got} bytes; expected {count * whole}, {whole} for "
                    f"each {op}. Each server has only its shard.",
                )
        training.agrees_with_messages(run)


@exercise.check(points=3, needs="sums_between", seconds=SECONDS)
def a_slow_replica_stops_nobody(student, rng):
    "A replica that is ten times slower does not hold the others up."
    for slow in (0, 1, 2):
        training = Training(2, 3, rng, 1, 1, 5)
        training.seconds[slow] = [10.0 * s for s in training.seconds[slow]]
        run = training.run(student)
        training.has_worked(run)
        for j in range(3):
            last = max((e.end for e in run.trace if e.rank == 2 + j and e.op == "compute"), default=0.0)
            expected = sum(training.seconds[j])
            checks.that(
                last <= expected + 1e-6,
                f"{training.setting}, replica {2 + slow} is slow: replica {2 + j} computes for {expected:.2f} s, and "
                f"is done at {last:.2f} s. No replica waits in Downpour: answer in order of arrival (wait_any).",
            )
        waited_for(run, training.setting)
        training.agrees_with_messages(run)
