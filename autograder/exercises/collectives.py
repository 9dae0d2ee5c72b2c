"""Lab 08, collectives: exercises and checks.

Oracles: the sum itself, and what the messages cost on the simulated machine, whose trace says who sent what to whom.
"""

import math
from functools import cache

import torch

from autograder import checks, show
from autograder.authoring import Lab
from autograder.checks.messages import (
    FEW,
    decimals,
    has_sum,
    has_sum_everywhere,
    ones,
    over,
    same_bits,
    sends,
    takes_rounds,
)
from hpcdl.collectives import ALL_REDUCE
from hpcdl.comm import simulate

lab = Lab("collectives", number=8, title="What a message costs")

tree = lab.exercise("tree_reduce", points=15, minutes=15, functions=("tree_reduce", "tree_broadcast"))
doubling = lab.exercise("recursive_doubling_all_reduce", points=15, minutes=15)
server = lab.exercise("parameter_server_all_reduce", points=15, minutes=15)
hierarchical = lab.exercise(
    "hierarchical_all_reduce", points=15, minutes=10, uses=("tree_reduce", "recursive_doubling_all_reduce")
)
cost = lab.exercise("cost", points=15, minutes=15)
fit = lab.exercise("fit_alpha_beta", points=10, minutes=10)
best = lab.exercise("best_algorithm", points=15, minutes=10, functions=("best_algorithm", "crossover"))

SECONDS = 15.0  # a check over ranks makes some hundred messages between processes

# ----------------------------------------------------------------------------------------- tree_reduce


ROUNDS = ((2, 0), (3, 2), (4, 0), (7, 6), (8, 3), (16, 0))  # p and root on which rounds are counted


def roots(p: int) -> tuple[int, ...]:
    """All kinds of roots for a few p, one for the others: each run of p ranks takes its time."""
    return (0, p // 2, p - 1) if p in (3, 8) else (p // 2,)


def log2_up(p: int) -> int:
    return (p - 1).bit_length()


@tree.check(points=4, seconds=SECONDS)
def sum_on_the_root(student, rng):
    "tree_reduce: the root's x is the sum, for p = 1 to 9 and any root."
    for p in FEW:
        for root in roots(p):
            run = over(student, "tree_reduce", decimals(p, 3), {"root": root})
            total = (10**p - 1) // 9
            at_zero = lambda run=run, total=total: bool((run.arguments[0][0] == total).all())  # noqa: E731
            mistakes = {"The sum is on rank 0, whatever root is: count ranks from the root.": at_zero} if root else {}
            has_sum(run, root, p, f"p = {p}, root = {root}", mistakes)


@tree.check(points=4, seconds=SECONDS)
def copies_everywhere(student, rng):
    "tree_broadcast: every x becomes the root's, for p = 1 to 9 and any root."
    for p in FEW:
        for root in roots(p):
            xs = [torch.randn(2, 3, generator=rng) for _ in range(p)]
            run = over(student, "tree_broadcast", xs, {"root": root})
            for rank in range(p):
                got = run.arguments[rank][0]
                mistakes = {"Rank 0's x was sent: it is the root's that counts.": xs[0]} if root else {}
                if rank != root:
                    mistakes["Nothing reached this rank: its x is what it was."] = xs[rank]
                name = f"p = {p}, root = {root}: x on rank {rank}"
                checks.close(got, xs[root], name=name, rtol=0, atol=0, mistakes=mistakes)


@tree.check(points=3, seconds=SECONDS, needs="sum_on_the_root")
def reduce_in_log_p_rounds(student, rng):
    "tree_reduce takes ⌈log₂ p⌉ rounds: those who have given theirs away rest, the others go on in pairs."
    for p, root in ROUNDS:
        run = over(student, "tree_reduce", ones(p, 3), {"root": root}, alpha=1.0)
        _tree_rounds(run, p, f"tree_reduce, p = {p}, root = {root}")


@tree.check(points=2, seconds=SECONDS, needs="copies_everywhere")
def broadcast_in_log_p_rounds(student, rng):
    "tree_broadcast takes ⌈log₂ p⌉ rounds: in each, all who have it send."
    for p, root in ROUNDS:
        run = over(student, "tree_broadcast", ones(p, 3), {"root": root}, alpha=1.0)
        _tree_rounds(run, p, f"tree_broadcast, p = {p}, root = {root}")


def _tree_rounds(run, p: int, setting: str) -> None:
    star = {f"This is a star, not a tree: the root deals with all {p - 1} others itself.": p - 1} if p > 3 else {}
    rule = f"the tree needs ⌈log₂ {p}⌉ = {log2_up(p)}, with a distance that doubles or halves from round to round"
    takes_rounds(run, log2_up(p), setting, rule, star)


@tree.check(points=2, seconds=SECONDS, needs=("sum_on_the_root", "copies_everywhere"))
def one_message_per_rank(student, rng):
    "p - 1 messages of n bytes: every rank but the root gives (or gets) once."
    for name in ("tree_reduce", "tree_broadcast"):
        for p in (5, 8):
            run = over(student, name, ones(p, 6), {"root": 1})
            sizes = [event.nbytes for event in sends(run)]
            checks.that(
                sizes == [24] * (p - 1),
                f"{name}, p = {p}: {len(sizes)} messages of {sum(sizes)} bytes in all; {p - 1} of 24 bytes are enough.",
            )


# ------------------------------------------------------------------------------------- recursive doubling


@doubling.check(points=4, seconds=SECONDS)
def powers_of_two(student, rng):
    "The sum on every rank for p = 1, 2, 4, 8."
    for p in (1, 2, 4, 8):
        has_sum_everywhere(student, "recursive_doubling_all_reduce", p, 3, f"p = {p}")


@doubling.check(points=4, seconds=SECONDS, needs="powers_of_two")
def any_number_of_ranks(student, rng):
    "The sum on every rank for p = 3, 5, 6, 7, 9."
    for p in (3, 5, 6, 7, 9):
        has_sum_everywhere(student, "recursive_doubling_all_reduce", p, 3, f"p = {p}")


@doubling.check(points=4, seconds=SECONDS, needs="powers_of_two")
def log_p_rounds(student, rng):
    "log₂ p rounds for a power of two, two more for any other p."
    for p in (4, 8, 16, 2):
        run = over(student, "recursive_doubling_all_reduce", ones(p, 3), alpha=1.0)
        k = log2_up(p)
        reduce_and_broadcast = "This is a reduce and then a broadcast. Let both partners send and add: sendrecv."
        one_after_other = "Both partners send, but one after the other: sendrecv does both at the same time."
        mistakes = {reduce_and_broadcast if sum(run.bytes_sent) < p * k * 12 else one_after_other: 2 * k}
        takes_rounds(run, k, f"p = {p}", f"recursive doubling needs log₂ {p} = {k}", mistakes)
    for p in (3, 6, 11):
        run = over(student, "recursive_doubling_all_reduce", ones(p, 3), alpha=1.0)
        k = log2_up(p) - 1
        rule = f"with the ranks from {2**k} on folded into the others first it takes 1 + {k} + 1"
        takes_rounds(run, k + 2, f"p = {p}", rule)


@doubling.check(points=3, seconds=SECONDS, needs="powers_of_two")
def same_bits_on_every_rank(student, rng):
    "Every rank ends with the same bits."
    for p in (4, 8):
        same_bits(student, "recursive_doubling_all_reduce", p, rng)


# ----------------------------------------------------------------------------------------- parameter server


@server.check(points=3, seconds=SECONDS)
def one_server(student, rng):
    "One server: the sum on every rank, for p = 1 to 9."
    for p in FEW:
        has_sum_everywhere(student, "parameter_server_all_reduce", p, 3, f"p = {p}, servers = 1", {"servers": 1})


@server.check(points=4, seconds=SECONDS, needs="one_server")
def several_servers(student, rng):
    "1 to p servers, also more servers than elements."
    for p, servers, n in ((2, 2, 7), (3, 2, 7), (5, 2, 7), (5, 4, 7), (6, 3, 7), (6, 6, 7), (3, 3, 1), (5, 4, 1)):
        setting = f"p = {p}, servers = {servers}, n = {n}"
        has_sum_everywhere(student, "parameter_server_all_reduce", p, n, setting, {"servers": servers})


@server.check(points=4, seconds=SECONDS, needs="several_servers")
def each_server_has_its_share(student, rng):
    "Workers talk to servers only, and each server deals with its own share of x."
    for p, servers in ((6, 1), (6, 2), (8, 4), (4, 4)):
        run = over(student, "parameter_server_all_reduce", ones(p, 48), {"servers": servers})
        setting = f"p = {p}, servers = {servers}"
        for event in sends(run):
            checks.that(
                min(event.rank, event.peer) < servers,
                f"{setting}: rank {event.rank} sends to rank {event.peer}, and neither is a server "
                f"(servers are ranks 0 to {servers - 1}).",
            )
        _shares(run, p, servers, setting)


def _shares(run, p: int, servers: int, setting: str) -> None:
    n = 48 * 4
    share = n // servers
    for rank, sent in enumerate(run.bytes_sent):
        expected = n if rank >= servers else n - share + (p - 1) * share
        mistakes = {
            "Every server gets and sends the whole x. Server j needs share j: x.tensor_split(servers)[j].": servers
            * expected,
            "Rank 0 serves alone: `servers` is ignored.": (p - 1) * n if rank == 0 else -1,
        }
        if sent != expected:
            role = f"server {rank}" if rank < servers else f"worker {rank}"
            raise checks.CheckFailure(
                f"{setting}: {role} sends {sent} bytes for an x of {n}.",
                got=f"{sent} bytes",
                expected=f"{expected} bytes: its shares to their servers, and as a server its sum to all others",
                mistake=next((sentence for sentence, value in mistakes.items() if value == sent), ""),
            )


@server.check(points=4, seconds=SECONDS, needs="each_server_has_its_share")
def servers_work_at_once(student, rng):
    "k servers take about 1/k of the time of one: nobody queues while a server is idle."
    for p, servers in ((8, 2), (8, 4), (8, 8)):
        run = over(student, "parameter_server_all_reduce", ones(p, 96), {"servers": servers}, beta=1.0)
        ideal = 2 * (p - 1) * 96 * 4 / servers
        checks.that(
            run.seconds <= 1.3 * ideal,
            f"p = {p}, servers = {servers}: it takes {run.seconds / ideal:.2g} times as long as p - 1 messages in and "
            "p - 1 out at each server. Some server waits while others are busy: let rank r send to r + d in round d, "
            "so that each server hears from another rank in each round.",
            got=f"{run.seconds:.0f} byte times",
            expected=f"at most 1.3 · {ideal:.0f} = {1.3 * ideal:.0f} (2 (p-1) n / servers, a little more)",
        )


# --------------------------------------------------------------------------------------------- hierarchical


def nodes(p: int, per_node: int) -> int:
    return -(-p // per_node)


@hierarchical.check(points=5, seconds=SECONDS)
def any_nodes(student, rng):
    "The sum on every rank for any p and per_node, also when the last node is smaller."
    for p, per_node in (
        (4, 2),
        (6, 3),
        (3, 1),
        (4, 4),
        (1, 4),
        (2, 4),
        (3, 2),
        (5, 2),
        (7, 4),
        (8, 3),
        (9, 4),
        (9, 10),
    ):
        setting = f"p = {p}, per_node = {per_node}"
        has_sum_everywhere(student, "hierarchical_all_reduce", p, 3, setting, {"per_node": per_node})


@hierarchical.check(points=4, seconds=SECONDS, needs="any_nodes")
def one_leader_per_node(student, rng):
    "Only one rank of each node talks to other nodes."
    for p, per_node in ((8, 4), (8, 2), (9, 3), (10, 4)):
        talking = {}
        run = over(student, "hierarchical_all_reduce", ones(p, 24), {"per_node": per_node})
        for event in sends(run):
            if event.rank // per_node != event.peer // per_node:
                talking.setdefault(event.rank // per_node, set()).add(event.rank)
                talking.setdefault(event.peer // per_node, set()).add(event.peer)
        for node, ranks in talking.items():
            checks.that(
                len(ranks) == 1,
                f"p = {p}, per_node = {per_node}: ranks {', '.join(map(str, sorted(ranks)))} of node {node} all talk "
                "to other nodes. Sum inside the node first; then its first rank alone speaks for it.",
            )


@hierarchical.check(points=3, seconds=SECONDS, needs="any_nodes")
def little_between_nodes(student, rng):
    "What crosses between nodes depends on the number of nodes, not on the ranks in them."
    for p, per_node in ((8, 4), (8, 2), (9, 3)):
        g, n = nodes(p, per_node), 24 * 4
        run = over(student, "hierarchical_all_reduce", ones(p, 24), {"per_node": per_node})
        crossing = sum(event.nbytes for event in sends(run) if event.rank // per_node != event.peer // per_node)
        most = g * (g.bit_length() + 1) * n  # recursive doubling among g leaders, with what odd ones add
        checks.that(
            crossing <= most,
            f"p = {p}, per_node = {per_node}: {crossing / n:.3g} times the size of x crosses between the nodes; an "
            f"all-reduce among {g} leaders needs at most {most / n:.3g}.",
        )


@hierarchical.check(points=3, seconds=SECONDS, needs="any_nodes")
def trees_inside(student, rng):
    "Inside a node a tree up and a tree down, between nodes at most a ring's rounds."
    for p, per_node in ((8, 8), (16, 8), (16, 4), (12, 4)):
        g, k = nodes(p, per_node), log2_up(per_node)
        run = over(student, "hierarchical_all_reduce", ones(p, 24), {"per_node": per_node}, alpha=1.0)
        rule = f"2⌈log₂ {per_node}⌉ = {2 * k} inside a node and at most 2({g}-1) = {2 * (g - 1)} between are enough"
        takes_rounds(run, 2 * k + 2 * (g - 1), f"p = {p}, per_node = {per_node}", rule)


# ------------------------------------------------------------------------------------------------------ cost


@cache
def terms(algorithm: str, p: int) -> tuple[float, float]:
    """What the algorithm costs on p ranks, as (alphas, betas per byte): two runs of the course's own."""
    q = 1 << (p.bit_length() - 1)
    n = math.lcm(p, q, nodes(p, 4))  # every piece is whole

    def run(comm):
        ALL_REDUCE[algorithm](torch.zeros(n), comm)

    return simulate(run, p, alpha=1.0).seconds, simulate(run, p, beta=1.0).seconds / (4 * n)


def predicted(algorithm: str, p: int, nbytes: float, alpha: float, beta: float) -> float:
    alphas, betas = terms(algorithm, p)
    return alphas * alpha + betas * nbytes * beta


def machine(rng) -> tuple[float, float]:
    """An alpha of 2 to 50 microseconds, a beta of 0.02 to 2 ns per byte, two digits each."""
    a, b = torch.rand(2, generator=rng, dtype=torch.float64).tolist()
    return float(f"{2e-6 * 25**a:.2g}"), float(f"{2e-11 * 100**b:.2g}")


def costs_what_it_takes(student, algorithm: str, p: int, rng) -> None:
    """The student's formula against the virtual time of the algorithm, on a machine of its own."""
    alpha, beta = machine(rng)
    nbytes = 5040 * int(torch.randint(1, 500, (), generator=rng))
    got = student.cost(algorithm, p, nbytes, alpha, beta)
    checks.that(
        type(got) in (int, float) or (type(got) is torch.Tensor and got.dim() == 0),
        f'cost("{algorithm}", ...) is {show.an(show.type_name(got))}, expected a number of seconds.',
    )
    alphas, betas = terms(algorithm, p)
    expected = predicted(algorithm, p, nbytes, alpha, beta)
    why = f'The "{algorithm}" all-reduce of {nbytes:,} bytes over {p} ranks takes so long on the simulated machine.'
    name = f'cost("{algorithm}", {p}, {nbytes}, {alpha}, {beta})'
    checks.close(got, expected, name=name, why=why, mistakes=cost_mistakes(algorithm, p, nbytes, alpha, beta))
    # A number can be right by accident, the two terms cannot: one machine without latency, one without bandwidth.
    checks.close(student.cost(algorithm, p, nbytes, 1.0, 0.0), alphas, name=f"the messages of {algorithm}, p = {p}")
    checks.close(
        student.cost(algorithm, p, nbytes, 0.0, 1.0), betas * nbytes, name=f"the bytes of {algorithm}, p = {p}"
    )


def cost_mistakes(algorithm: str, p: int, nbytes: float, alpha: float, beta: float) -> dict:
    """What plausible wrong formulas give, by the sentence that names the mistake."""
    right = predicted(algorithm, p, nbytes, alpha, beta)
    message, log2 = alpha + nbytes * beta, math.log2(p)
    q = 1 << (p.bit_length() - 1)
    found = {
        "Half of it: the sums have to come back to all ranks, too.": right / 2,
        "beta is in seconds per byte and nbytes in bytes: no factor 4 for floats, 8 for bits.": predicted(
            algorithm, p, 8 * nbytes, alpha, beta
        ),
    }
    if algorithm == "ring":
        found |= {
            "A ring sends chunks: nbytes / p in each message.": 2 * (p - 1) * message,
            "Each of the 2(p-1) messages has its latency.": 2 * alpha + 2 * (p - 1) / p * nbytes * beta,
            "p - 1 steps each way, not p: the last chunk need not go round.": 2 * p * (alpha + nbytes / p * beta),
        }
    if algorithm == "tree":
        found |= {
            "log₂ p has to be rounded up: a round is a whole round.": 2 * log2 * message,
            "Rounded down, the ranks beyond a power of two are forgotten: round up.": 2 * int(log2) * message,
            "The logarithm is to the base 2: ranks double.": 2 * math.log(p) * message,
            "2(p-1) messages there are, but most at the same time: count rounds.": 2 * (p - 1) * message,
        }
    if algorithm in ("naive", "parameter_server"):
        found |= {
            "The lecture's table shares the latency of all workers; here the server takes one message after the other, "
            "each with its alpha.": 2 * alpha + 2 * (p - 1) * nbytes * beta,
            "Rank 0 keeps its own x: p - 1 messages come in, not p.": 2 * p * message,
        }
    if algorithm in ("recursive_doubling", "rabenseifner") and p > q:
        found |= {
            "The ranks beyond the power of two are forgotten: they add two messages of nbytes.": predicted(
                algorithm, q, nbytes, alpha, beta
            ),
            "log₂ p of a p that is no power of two is no number of rounds: take the largest power of two below.": (
                log2 * message
                if algorithm == "recursive_doubling"
                else 2 * log2 * alpha + 2 * (p - 1) / p * nbytes * beta
            ),
        }
    if algorithm == "recursive_doubling":
        found |= {"Both partners send and receive at the same time: log₂ p rounds, not twice as many.": 2 * right}
    if algorithm == "rabenseifner":
        found |= {
            "In each round only half of the piece is sent: (q-1)/q of nbytes each way in all.": 2
            * (q.bit_length() - 1)
            * message
            + (2 * message if p > q else 0)
        }
    if algorithm == "hierarchical":
        g = nodes(p, 4)
        found |= {
            "The number of nodes is p / 4 rounded up.": predicted("tree", min(p, 4), nbytes, alpha, beta)
            + (predicted("ring", p // 4, nbytes, alpha, beta) if p >= 4 else 0),
            "Only the ring between the nodes: add the trees inside.": predicted("ring", g, nbytes, alpha, beta),
        }
    return {sentence: value for sentence, value in found.items() if not math.isclose(value, right, rel_tol=1e-3)}


@cost.check(points=1)
def alone(student, rng):
    "One rank has nothing to send: every algorithm costs 0."
    for algorithm in ALL_REDUCE:
        got = student.cost(algorithm, 1, 1_000_000, 1e-5, 1e-9)
        checks.close(got, 0.0, name=f'cost("{algorithm}", 1, ...)', atol=1e-15)


@cost.check(points=5)
def naive_ring_and_tree(student, rng):
    "naive, ring and tree take what they take on the simulated machine."
    for algorithm in ("naive", "ring", "tree"):
        for p in (2, 3, 6, 7, 8, 16):
            costs_what_it_takes(student, algorithm, p, rng)


@cost.check(points=4)
def doubling_for_powers_of_two(student, rng):
    "recursive_doubling and rabenseifner for p = 2, 4, 8, 16, 32."
    for algorithm in ("recursive_doubling", "rabenseifner"):
        for p in (2, 4, 8, 16, 32):
            costs_what_it_takes(student, algorithm, p, rng)


@cost.check(points=3, needs="doubling_for_powers_of_two")
def doubling_for_any_p(student, rng):
    "recursive_doubling and rabenseifner where ranks have to be folded first."
    for algorithm in ("recursive_doubling", "rabenseifner"):
        for p in (3, 5, 6, 9, 31):
            costs_what_it_takes(student, algorithm, p, rng)


@cost.check(points=2)
def server_and_nodes(student, rng):
    "parameter_server with one server, hierarchical with nodes of four."
    for algorithm in ("parameter_server", "hierarchical"):
        for p in (2, 3, 4, 6, 8, 9, 16):
            costs_what_it_takes(student, algorithm, p, rng)


# -------------------------------------------------------------------------------------------- fit_alpha_beta

SIZES = tuple(4.0 * 8**k for k in range(9))  # 4 B to 64 MiB
REPEATS = 9


def measurements(alpha: float, beta: float, rng, noise: float = 0.0, slow: float = 0.0):
    """`(nbytes, seconds)` in a random order: each size nine times, up to `noise` too slow, a share `slow` held up."""
    nbytes = torch.tensor(SIZES, dtype=torch.float64).repeat(REPEATS)
    seconds = (alpha + nbytes * beta) * (1 + noise * torch.rand(len(nbytes), generator=rng, dtype=torch.float64))
    if slow:
        late = torch.arange(len(nbytes)) // len(SIZES) < round(slow * REPEATS)
        seconds[late] *= 10 + 90 * torch.rand(int(late.sum()), generator=rng, dtype=torch.float64)
    order = torch.randperm(len(nbytes), generator=rng)
    return nbytes[order], seconds[order]


def least_squares(nbytes, seconds, weights) -> tuple[float, float]:
    rows = torch.stack([torch.ones_like(nbytes), nbytes], 1) * weights[:, None]
    a, b = torch.linalg.lstsq(rows, (seconds * weights)[:, None]).solution.flatten().tolist()
    return a, b


def fits(student, alpha: float, beta: float, nbytes, seconds, tolerance: float, why: str) -> None:
    got = student.fit_alpha_beta(nbytes.clone(), seconds.clone())
    is_pair = type(got) in (tuple, list) and len(got) == 2
    checks.that(is_pair, "fit_alpha_beta(nbytes, seconds) should return a pair: alpha, beta.", got=got)
    wrong = wrong_fits(alpha, beta, nbytes, seconds)
    for i, (name, value) in enumerate((("alpha", alpha), ("beta", beta))):
        # Where a mistake gives a right value, it is none.
        mistakes = {s: pair[i] for s, pair in wrong.items() if not abs(pair[i] - value) <= tolerance * value}
        mistakes = _near(got[i], mistakes)
        checks.close(got[i], value, name=name, rtol=tolerance, atol=0, why=why, mistakes=mistakes)


def wrong_fits(alpha: float, beta: float, nbytes, seconds) -> dict[str, tuple[float, float]]:
    """What plausible wrong fits give, by the sentence that names the mistake."""
    sizes = nbytes.unique()
    means = torch.stack([seconds[nbytes == size].mean() for size in sizes])
    return {
        "The two are swapped: alpha (seconds) first, then beta (seconds per byte).": (beta, alpha),
        "This is the bandwidth; beta is seconds per byte, its inverse.": (math.nan, 1 / beta),
        "This is ordinary least squares: the noise of the largest messages drowns the smallest. Weigh each message by "
        "1 / its time, so that errors count in percent.": least_squares(nbytes, seconds, torch.ones_like(seconds)),
        "This takes the mean of each size: one message a hundred times too slow moves it. Take the least of them.": (
            least_squares(sizes, means, 1 / means)
        ),
    }


def _near(got, mistakes: dict) -> dict:
    """The mistakes that `got` is close to, as `got` itself: the check's own tolerance is too wide to tell them."""
    return {s: got for s, value in mistakes.items() if type(got) is float and math.isclose(got, value, rel_tol=0.02)}


@fit.check(points=3)
def exact_times(student, rng):
    "Times without noise give alpha and beta exactly."
    alpha, beta = machine(rng)
    fits(student, alpha, beta, *measurements(alpha, beta, rng), 1e-6, "The times are exactly alpha + nbytes · beta.")


@fit.check(points=3, needs="exact_times")
def small_messages_count(student, rng):
    "With up to 10 % of noise alpha is right to 10 %, though the largest message takes 1,000 alphas and more."
    for _ in range(3):
        alpha, beta = machine(rng)
        beta = max(beta, 5e-11)
        why = "Each time is alpha + nbytes · beta, and up to 10 % more."
        fits(student, alpha, beta, *measurements(alpha, beta, rng, noise=0.1), 0.1, why)


@fit.check(points=4, needs="exact_times")
def outliers_do_not(student, rng):
    "Two of nine messages of each size were held up 10 to 100 times as long: the fit does not notice."
    for _ in range(3):
        alpha, beta = machine(rng)
        why = (
            "Two of nine messages of each size took 10 to 100 times as long, as on a machine that does something else."
        )
        fits(student, alpha, beta, *measurements(alpha, beta, rng, noise=0.02, slow=0.22), 0.1, why)


# -------------------------------------------------------------------------------------------- best_algorithm


@best.check(points=6)
def the_cheapest(student, rng):
    "best_algorithm names the cheapest for 2 to 33 ranks and 4 bytes to 1 GB."
    for p in (2, 3, 4, 6, 8, 12, 16, 31, 33):
        for nbytes in (4, 10_000, 1_000_000, 1_000_000_000):
            alpha, beta = machine(rng)
            costs = {name: predicted(name, p, nbytes, alpha, beta) for name in ALL_REDUCE}
            cheapest, second = sorted(costs, key=costs.get)[:2]
            if costs[second] < 1.01 * costs[cheapest]:
                continue  # as good as equal: either will do
            got = student.best_algorithm(p, nbytes, alpha, beta, predicted)
            checks.that(
                type(got) is str and got in costs,
                f"best_algorithm({p}, {nbytes}, {alpha}, {beta}) should be one of {', '.join(costs)}.",
                got=got,
            )
            if got != cheapest:
                raise checks.CheckFailure(
                    f"best_algorithm({p}, {nbytes}, {alpha}, {beta}) is not the cheapest.",
                    got=f"{got!r}, {1e6 * costs[got]:.4g} µs",
                    expected=f"{cheapest!r}, {1e6 * costs[cheapest]:.4g} µs",
                    mistake=wrong_choice(got, p, costs),
                )


def wrong_choice(got: str, p: int, costs: dict[str, float]) -> str:
    """What the choice of `got` optimises in place of the cost."""
    messages, nbytes = ({name: terms(name, p)[i] for name in costs} for i in (0, 1))
    if costs[got] == max(costs.values()):
        return "This is the dearest of all: take the minimum."
    if math.isclose(nbytes[got], min(nbytes.values())):
        return "It sends the fewest bytes, but for small messages alpha decides."
    if math.isclose(messages[got], min(messages.values())):
        return "It sends the fewest messages, but for large ones beta decides."
    return ""


PAIRS = (  # that cross, and ranks to try them on
    ("recursive_doubling", "rabenseifner", (4, 8, 16, 6)),
    ("recursive_doubling", "ring", (3, 6, 8, 12)),
    ("tree", "ring", (4, 7, 8)),
    ("rabenseifner", "ring", (6, 12, 31)),
)


def meeting_point(first: str, second: str, p: int, alpha: float, beta: float) -> float:
    (a1, b1), (a2, b2) = terms(first, p), terms(second, p)
    return (a2 - a1) * alpha / ((b1 - b2) * beta)


@best.check(points=5)
def crossover_in_bytes(student, rng):
    "crossover gives the message size at which two algorithms cost the same."
    for first, second, ranks in PAIRS:
        for p in ranks:
            alpha, beta = machine(rng)
            expected = meeting_point(first, second, p, alpha, beta)
            for names in ((first, second), (second, first)):
                got = student.crossover(*names, p, alpha, beta, predicted)
                if type(got) is float and got < 0:
                    checks.fail(
                        f'crossover("{names[0]}", "{names[1]}", {p}, ...) is {show.number(got)}: a size is positive. '
                        "Where alphas are subtracted one way, betas go the other way round.",
                        got=got,
                        expected=expected,
                    )
                mistakes = {
                    "These are elements of 4 bytes; bytes are asked for.": expected / 4,
                    "Upside down: alphas above, betas below.": 1 / expected,
                    "Divide by beta too: bytes, not seconds.": expected * beta,
                }
                name = f'crossover("{names[0]}", "{names[1]}", {p}, {alpha}, {beta})'
                why = "Both cost a·alpha + b·nbytes·beta: two straight lines in nbytes."
                checks.close(got, expected, name=name, mistakes=mistakes, why=why)


@best.check(points=2, needs="crossover_in_bytes")
def some_never_cross(student, rng):
    "crossover is math.inf where one algorithm is better at every size."
    for better, worse, p in (("rabenseifner", "ring", 8), ("recursive_doubling", "tree", 8), ("tree", "naive", 6)):
        alpha, beta = machine(rng)
        for first, second in ((better, worse), (worse, better)):
            got = student.crossover(first, second, p, alpha, beta, predicted)
            # Equal slopes may differ in a last bit: a size of 10^12 alpha/beta is never, too.
            checks.that(
                type(got) in (int, float) and got >= 1e12 * alpha / beta,
                f'crossover("{first}", "{second}", {p}, ...) should be math.inf: {better} never costs more than '
                f"{worse}, so the lines do not meet at any size above 0.",
                got=got,
                expected="inf",
            )


@best.check(points=2, needs=("the_cheapest", "crossover_in_bytes"))
def changes_at_the_crossover(student, rng):
    "best_algorithm changes its answer at the crossover."
    for first, second, p in (("recursive_doubling", "rabenseifner", 8), ("recursive_doubling", "ring", 3)):
        alpha, beta = machine(rng)
        size = student.crossover(first, second, p, alpha, beta, predicted)
        for nbytes, name in ((0.98 * size, first), (1.02 * size, second)):
            got = student.best_algorithm(p, nbytes, alpha, beta, predicted)
            checks.equal(
                got, name, name=f"best_algorithm({p}, {nbytes:.6g}, {alpha}, {beta})", why="2 % from the crossover"
            )
