"""Sparse updates without locks, event by event. Oracles: Niu's definitions over all pairs of edges, NumPy's replay."""

import itertools

import numpy as np
import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.exercises.drawing import whole_number

exercise = Exercise("hogwild", points=25, minutes=20, functions=("overlap", "hogwild"))


def edges_of(rng: torch.Generator, count: int, n: int, most: int) -> list[tuple[int, ...]]:
    sizes = torch.randint(1, most + 1, (count,), generator=rng).tolist()
    return [tuple(torch.randperm(n, generator=rng)[:size].tolist()) for size in sizes]


def by_pairs(edges: list[tuple[int, ...]], n: int) -> tuple[int, float, float]:
    """Omega, Delta and rho by looking at every component of every edge, and at every pair of edges."""
    table = np.zeros((len(edges), n), dtype=int)
    for i, edge in enumerate(edges):
        table[i, list(edge)] = 1
    meets = (table @ table.T) > 0
    return int(table.sum(1).max()), float(table.mean(0).max()), float(meets.mean(1).max())


EDGES: list[tuple[int, ...]] = [(0, 1), (1, 2), (3,), (3, 4, 5, 6)]  # for messages: small enough to see


@exercise.check(points=8)
def how_much_edges_overlap(student, rng):
    "overlap: the largest edge, the most used component's share of the edges, the most overlapped edge's."
    cases: list[tuple[list[tuple[int, ...]], int]] = [(EDGES, 7), ([(0,), (1,)], 5), ([(0, 1, 2)] * 3, 3), ([(7,)], 8)]
    cases += [(edges_of(rng, 12, n, 3), n) for n in (6, 15)]
    for edges, n in cases:
        got, call = student.overlap(list(edges), n), f"overlap({show.show(edges)}, {n})"
        checks.that(
            type(got) in (tuple, list) and len(got) == 3 and all(checks.is_number(x) for x in got),
            f"{call} is {show.show(got)}, expected three numbers: omega, delta, rho.",
        )
        omega, delta, rho = by_pairs(edges, n)
        count = len(edges)
        checks.equal(
            float(got[0]), float(omega), name=f"omega in {call}", why="The largest number of components in an edge."
        )
        named = {
            "Divide by the number of edges, not of components.": delta * count / n,
            "That is a number of edges: divide by the number of all edges.": delta * count,
            "That is the mean over the components: Delta is the maximum.": sum(len(edge) for edge in edges) / n / count,
        }
        named = {s: v for s, v in named.items() if abs(v - delta) > 1e-9}
        checks.close(got[1], delta, name=f"delta in {call}", mistakes=named, why="Edges with it / all edges.")
        named = {
            "rho is a share of the edges: divide by |E|, not by n.": rho * count / n,
            "An edge meets itself, too: count it, as Niu does.": rho - 1 / count,
            "That is a number of edges: divide by |E|.": rho * count,
            "Delta counts the edges at one component; rho counts those that share any component.": delta,
        }
        named = {s: v for s, v in named.items() if abs(v - rho) > 1e-9}
        checks.close(got[2], rho, name=f"rho in {call}", mistakes=named, why="Edges that meet it / all edges.")


PAIR = ("load", "store")


def events_of(k: int, edge: tuple[int, ...]) -> list[tuple[str, int, int]]:
    """What update k does, in its order: it reads all, then loads and stores each."""
    return [("read", k, v) for v in edge] + [(op, k, v) for v in edge for op in PAIR]


def in_any_order(rng: torch.Generator, k: int, edge: tuple[int, ...]) -> list[tuple[str, int, int]]:
    """The same, with loads and stores in a random order, each load before its store."""
    places = torch.randperm(2 * len(edge), generator=rng).view(-1, 2).sort(1).values.tolist()
    placed = {
        place: (op, k, v) for v, pair in zip(edge, places, strict=True) for op, place in zip(PAIR, pair, strict=True)
    }
    return [("read", k, v) for v in edge] + [placed[place] for place in range(len(placed))]


def mixed(rng: torch.Generator, edges: list[tuple[int, ...]], at_once: int) -> list[tuple[str, int, int]]:
    """Return the events of all updates, each in its order; `at_once` updates overlap at a time."""
    waiting = [in_any_order(rng, k, edge) for k, edge in enumerate(edges)]
    queues: list[list[tuple[str, int, int]]] = []
    found: list[tuple[str, int, int]] = []
    while waiting or queues:
        while waiting and len(queues) < at_once:
            queues.append(waiting.pop(0))
        queue = queues[int(torch.randint(len(queues), (), generator=rng))]
        found.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    return found


VIEW = "If you keep `w[v]` itself, it is a view of w and changes with it: keep `w[v].clone()`."


class Problem:
    """f_e(w) has the gradient scale[e] * (w_e - target[e]) + sum(w_e) / 2."""

    def __init__(self, edges: list[tuple[int, ...]], n: int, rng: torch.Generator, dtype=torch.float64):
        self.edges, self.n, self.lr = edges, n, whole_number(rng, 1, 3) / 8
        self.w = torch.randn(n, generator=rng).to(dtype)
        self.scale = (torch.rand(len(edges), generator=rng) + 0.5).to(dtype)
        self.target = [torch.randn(len(edge), generator=rng).to(dtype) for edge in edges]

    def gradient(self, k: int, x: torch.Tensor) -> torch.Tensor:
        return self.scale[k] * (x - self.target[k]) + x.sum() / 2

    def replay(self, schedule: list, mistake: str = "", sign: float = 1.0) -> torch.Tensor:
        """Event by event, in NumPy."""
        w, lr = self.w.numpy().copy(), sign * self.lr
        seen: dict[int, dict[int, float]] = {}
        register: dict[tuple[int, int], float] = {}
        for op, k, v in schedule:
            edge = self.edges[k]
            if op == "read":
                seen.setdefault(k, {})[v] = w[v]
            elif op == "load":
                register[0 if mistake == "one register" else k, v] = w[v]
            else:
                if mistake in ("late", "views"):
                    seen[k] = {u: w[u] for u in edge}
                x = np.array(list(seen[k].values()) if mistake == "order" else [seen[k][u] for u in edge])
                g = float(self.scale[k]) * (x - self.target[k].numpy()) + x.sum() / 2
                step = lr * g[edge.index(v)]
                if mistake in ("atomic", "views"):
                    w[v] -= step
                elif mistake == "from what was read":
                    w[v] = seen[k][v] - step
                elif mistake == "whole":
                    for u, gu in zip(edge, g, strict=True):
                        w[u] = seen[k][u] - lr * gu
                else:
                    w[v] = register[0 if mistake == "one register" else k, v] - step
        return torch.from_numpy(w)

    def run(self, student, schedule: list, setting: str) -> torch.Tensor:
        before = self.w.clone()
        got = student.hogwild(self.w, list(self.edges), self.gradient, self.lr, list(schedule))
        checks.unchanged(self.w, before, name="w")
        right = self.replay(schedule)
        names = {
            "atomic": "An update must get lost here: store the loaded value minus the step, whatever is in memory now. "
            f"{VIEW}",
            "views": f"Events after the read and the load change what you have kept. {VIEW}",
            "from what was read": "Subtract the step from the value of `load`, not from the value of `read`.",
            "whole": "A store writes only its own component: otherwise it undoes what others have written.",
            "order": "x has the order of edges[k], in whatever order the components were read.",
            "one register": "Each update has its own register: keep what it loads by (k, v).",
            "late": f"Compute the gradient from the values that were read, not from those of a load or a store. {VIEW}",
        }
        named = {sentence: self.replay(schedule, kind) for kind, sentence in names.items()}
        named["Downhill: minus lr times the gradient."] = self.replay(schedule, sign=-1.0)
        named = {s: v for s, v in named.items() if not torch.allclose(v, right, rtol=1e-12)}
        error = 1e-12 if self.w.dtype == torch.float64 else 1e-5
        checks.close(got, right, name=f"{setting}: w", mistakes=named, rtol=error, atol=error)
        return got


def one_after_the_other(edges) -> list[tuple[str, int, int]]:
    return [event for k, edge in enumerate(edges) for event in events_of(k, edge)]


@exercise.check(points=5)
def alone(student, rng):
    "hogwild: updates one after the other are SGD on one thread; components outside an edge stay."
    for n in (4, 9):
        problem = Problem(edges_of(rng, 5, n, 3), n, rng)
        problem.run(student, one_after_the_other(problem.edges), "one after the other")
    problem = Problem(edges_of(rng, 5, 6, 3), 6, rng, torch.float32)
    problem.run(student, one_after_the_other(problem.edges), "float32, one after the other")
    problem = Problem([(2,), (2, 0)], 6, rng)
    got = problem.run(student, one_after_the_other(problem.edges), "edges (2,) and (2, 0)")
    for v in (1, 3, 4, 5):
        checks.that(bool(got[v] == problem.w[v]), f"w[{v}] has changed, but no edge contains it.")
    problem.run(student, [], "no event")


@exercise.check(points=4, needs="alone")
def disjoint_edges_in_any_order(student, rng):
    "hogwild: disjoint edges give the same bits in every order."
    problem = Problem([(0, 3), (1,), (2, 4), (5, 6, 7)], 8, rng)
    serial = problem.run(student, one_after_the_other(problem.edges), "one after the other")
    for _ in range(3):
        got = problem.run(student, mixed(rng, problem.edges, 4), "mixed")
        checks.that(
            bool((got == serial).all()), "The edges share nothing, but w differs from the result of one thread."
        )


@exercise.check(points=8, needs="alone")
def updates_get_lost(student, rng):
    "hogwild: an update is lost only if another's store falls between its load and its store."
    undone = [("read", 0, 0), ("read", 0, 1), ("load", 0, 1), ("store", 0, 1), *events_of(1, (1,))]
    undone += [("load", 0, 0), ("store", 0, 0)]
    Problem([(0, 1), (1,)], 2, rng).run(student, undone, "update 1 between the two stores of update 0")
    edges: list[tuple[int, ...]] = [(0,), (0,)]
    between = [("read", 0, 0), ("read", 1, 0), ("load", 0, 0), ("load", 1, 0), ("store", 0, 0), ("store", 1, 0)]
    apart = [("read", 0, 0), ("read", 1, 0), ("load", 0, 0), ("store", 0, 0), ("load", 1, 0), ("store", 1, 0)]
    problem = Problem(edges, 1, rng)
    problem.run(student, between, "two updates of w[0], the second stores over the first")
    problem.run(student, apart, "two updates of w[0], both read first, then load and store in turn")
    three = [("load", 0, 0), ("load", 1, 0), ("store", 1, 0), ("load", 2, 0), ("store", 2, 0), ("store", 0, 0)]
    reads = [("read", k, 0) for k in range(3)]
    setting = "three updates of w[0], the third loads between the load and the store of the first"
    Problem([(0,)] * 3, 1, rng).run(student, reads + three, setting)
    mirrored = [("read", 0, v) for v in (1, 2, 0)] + events_of(0, (2, 0, 1))[3:]
    Problem([(2, 0, 1)], 3, rng).run(student, mirrored, "edge (2, 0, 1), read in the order 1, 2, 0")
    for at_once, n in itertools.product((2, 4), (3, 6)):
        problem = Problem(edges_of(rng, 8, n, 3), n, rng)
        problem.run(student, mixed(rng, problem.edges, at_once), f"{at_once} updates at a time")
