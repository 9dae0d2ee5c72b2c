"""Wrong answers to lab 08, collectives."""

import math

import torch

from autograder.authoring import wrong
from hpcdl.collectives import broadcast, reduce, ring_all_reduce
from hpcdl.comm import Group

AFTER_THE_SUM = ("sum_on_the_root", "reduce_in_log_p_rounds", "one_message_per_rank")
AFTER_THE_COPIES = ("copies_everywhere", "broadcast_in_log_p_rounds", "one_message_per_rank")
ALL_OF_DOUBLING = ("powers_of_two", "any_number_of_ranks", "log_p_rounds", "same_bits_on_every_rank")
ALL_OF_SERVERS = ("one_server", "several_servers", "each_server_has_its_share", "servers_work_at_once")
ALL_OF_NODES = ("any_nodes", "one_leader_per_node", "little_between_nodes", "trees_inside")
ALL_OF_FIT = ("exact_times", "small_messages_count", "outliers_do_not")

# ----------------------------------------------------------------------------------------- tree_reduce


@wrong("collectives.tree_reduce", "a star", fails="reduce_in_log_p_rounds", says="This is a star, not a tree")
def tree_reduce(x, comm, root=0):
    incoming = torch.empty_like(x)
    if comm.rank != root:
        comm.send(x, root)
        return
    for source in range(comm.size):
        if source != root:
            comm.recv(incoming, source)
            x += incoming


@wrong("collectives.tree_reduce", "sums on rank 0", fails=AFTER_THE_SUM, says="count ranks from the root")
def tree_reduce(x, comm, root=0):
    incoming = torch.empty_like(x)
    distance = 1 << (comm.size - 1).bit_length()
    while distance > 1:
        distance //= 2
        if comm.rank < distance and comm.rank + distance < comm.size:
            comm.recv(incoming, comm.rank + distance)
            x += incoming
        elif distance <= comm.rank < 2 * distance:
            comm.send(x, comm.rank - distance)


@wrong("collectives.tree_reduce", "forgets ranks beyond a power of two", fails=AFTER_THE_SUM, says="is missing")
def tree_reduce(x, comm, root=0):
    p, place = comm.size, (comm.rank - root) % comm.size
    incoming = torch.empty_like(x)
    distance = 1 << (p.bit_length() - 1)
    while distance > 1:
        distance //= 2
        if place < distance:
            comm.recv(incoming, (comm.rank + distance) % p)
            x += incoming
        elif distance <= place < 2 * distance:
            comm.send(x, (comm.rank - distance) % p)


@wrong("collectives.tree_reduce", "overwrites for accumulates", fails=AFTER_THE_SUM, says="is missing")
def tree_reduce(x, comm, root=0):
    p, place = comm.size, (comm.rank - root) % comm.size
    distance = 1 << (p - 1).bit_length()
    while distance > 1:
        distance //= 2
        if place < distance and place + distance < p:
            comm.recv(x, (comm.rank + distance) % p)
        elif distance <= place < 2 * distance:
            comm.send(x, (comm.rank - distance) % p)


@wrong("collectives.tree_reduce", "waits for a rank that does not exist", fails=AFTER_THE_SUM, says="a deadlock")
def tree_reduce(x, comm, root=0):
    p, place = comm.size, (comm.rank - root) % comm.size
    incoming = torch.empty_like(x)
    distance = 1 << (p - 1).bit_length()
    while distance > 1:
        distance //= 2
        if place < distance:
            comm.recv(incoming, (comm.rank + distance) % p)
            x += incoming
        elif distance <= place < 2 * distance:
            comm.send(x, (comm.rank - distance) % p)


@wrong("collectives.tree_reduce", "returns the sum", fails=AFTER_THE_SUM, says="but the returned value is")
def tree_reduce(x, comm, root=0):
    p, place = comm.size, (comm.rank - root) % comm.size
    total, incoming = x.clone(), torch.empty_like(x)
    distance = 1 << (p - 1).bit_length()
    while distance > 1:
        distance //= 2
        if place < distance and place + distance < p:
            comm.recv(incoming, (comm.rank + distance) % p)
            total += incoming
        elif distance <= place < 2 * distance:
            comm.send(total, (comm.rank - distance) % p)
    return total


@wrong("collectives.tree_reduce", "broadcasts rank 0's", fails=AFTER_THE_COPIES, says="it is the root's that counts")
def tree_broadcast(x, comm, root=0):
    distance = 1
    while distance < comm.size:
        if comm.rank < distance and comm.rank + distance < comm.size:
            comm.send(x, comm.rank + distance)
        elif distance <= comm.rank < 2 * distance:
            comm.recv(x, comm.rank - distance)
        distance *= 2


@wrong("collectives.tree_reduce", "the machine's own", fails=AFTER_THE_COPIES, says="calls comm.broadcast")
def tree_broadcast(x, comm, root=0):
    comm.broadcast(x, root)


@wrong("collectives.tree_reduce", "passes on in a row", fails="broadcast_in_log_p_rounds", says="messages follow one")
def tree_broadcast(x, comm, root=0):
    p, place = comm.size, (comm.rank - root) % comm.size
    if place > 0:
        comm.recv(x, (comm.rank - 1) % p)
    if place < p - 1:
        comm.send(x, (comm.rank + 1) % p)


# ------------------------------------------------------------------------------------- recursive doubling

DOUBLING = "collectives.recursive_doubling_all_reduce"


@wrong(DOUBLING, "send, then receive", fails=ALL_OF_DOUBLING, says="use sendrecv, or let one side receive")
def recursive_doubling_all_reduce(x, comm):
    incoming, distance = torch.empty_like(x), 1
    while distance < comm.size:
        comm.send(x, comm.rank ^ distance)
        comm.recv(incoming, comm.rank ^ distance)
        x += incoming
        distance *= 2


@wrong(DOUBLING, "skips partners that are not there", fails="any_number_of_ranks", says="is missing")
def recursive_doubling_all_reduce(x, comm):
    incoming, distance = torch.empty_like(x), 1
    while distance < comm.size:
        partner = comm.rank ^ distance
        if partner < comm.size:
            comm.sendrecv(x, partner, incoming, partner)
            x += incoming
        distance *= 2


@wrong(DOUBLING, "receives into what it sends", fails=ALL_OF_DOUBLING, says="share memory")
def recursive_doubling_all_reduce(x, comm):
    mine, distance = x.clone(), 1
    while distance < comm.size:
        partner = comm.rank ^ distance
        comm.sendrecv(x, partner, x, partner)
        x += mine
        mine.copy_(x)
        distance *= 2


@wrong(DOUBLING, "partners take turns", fails="log_p_rounds", says="sendrecv does both at the same time")
def recursive_doubling_all_reduce(x, comm):
    q = 1 << (comm.size.bit_length() - 1)
    incoming, distance = torch.empty_like(x), 1
    if comm.rank >= q:
        comm.send(x, comm.rank - q)
        comm.recv(x, comm.rank - q)
        return
    if comm.rank + q < comm.size:
        comm.recv(incoming, comm.rank + q)
        x += incoming
    while distance < q:
        partner = comm.rank ^ distance
        if comm.rank < partner:
            comm.send(x, partner)
            comm.recv(incoming, partner)
        else:
            comm.recv(incoming, partner)
            comm.send(x, partner)
        x += incoming
        distance *= 2
    if comm.rank + q < comm.size:
        comm.send(x, comm.rank + q)


@wrong(DOUBLING, "a tree up and down", fails="log_p_rounds", says="This is a reduce and then a broadcast")
def recursive_doubling_all_reduce(x, comm):
    reduce(x, comm)
    broadcast(x, comm)


@wrong(DOUBLING, "adds round a circle", fails="same_bits_on_every_rank", says="in their last bits")
def recursive_doubling_all_reduce(x, comm):
    q = 1 << (comm.size.bit_length() - 1)
    incoming, distance = torch.empty_like(x), 1
    if comm.rank >= q:
        comm.send(x, comm.rank - q)
        comm.recv(x, comm.rank - q)
        return
    if comm.rank + q < comm.size:
        comm.recv(incoming, comm.rank + q)
        x += incoming
    while distance < q:
        comm.sendrecv(x, (comm.rank + distance) % q, incoming, (comm.rank - distance) % q)
        x += incoming
        distance *= 2
    if comm.rank + q < comm.size:
        comm.send(x, comm.rank + q)


# ----------------------------------------------------------------------------------------- parameter server

SERVER = "collectives.parameter_server_all_reduce"


@wrong(
    SERVER, "one share after the other", fails="servers_work_at_once", says="Some server waits while others are busy"
)
def parameter_server_all_reduce(x, comm, servers=1):
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    for server, share in enumerate(x.tensor_split(servers)):
        if comm.rank == server:
            incoming = torch.empty_like(share)
            for other in others:
                comm.recv(incoming, other)
                share += incoming
            for other in others:
                comm.send(share, other)
        else:
            comm.send(share, server)
            comm.recv(share, server)


@wrong(SERVER, "everyone queues at server 0 first", fails="servers_work_at_once", says="let rank r send to r + d in")
def parameter_server_all_reduce(x, comm, servers=1):
    shares = x.tensor_split(servers)
    requests = [comm.isend(shares[server], server) for server in range(servers) if server != comm.rank]
    if comm.rank < servers:
        incoming = torch.empty_like(shares[comm.rank])
        for other in range(comm.size):
            if other != comm.rank:
                comm.recv(incoming, other)
                shares[comm.rank].add_(incoming)
    for request in requests:
        request.wait()
    requests = [
        comm.isend(shares[comm.rank], other) for other in range(comm.size) if comm.rank < servers and other != comm.rank
    ]
    for server in range(servers):
        if server != comm.rank:
            comm.recv(shares[server], server)
    for request in requests:
        request.wait()


@wrong(
    SERVER,
    "everything to every server",
    fails=("each_server_has_its_share", "servers_work_at_once"),
    says="Every server gets and sends the whole x",
)
def parameter_server_all_reduce(x, comm, servers=1):
    mine, incoming = x.clone(), torch.empty_like(x)
    for server in range(servers):
        if comm.rank == server:
            for other in range(comm.size):
                if other != server:
                    comm.recv(incoming, other)
                    x += incoming
        else:
            comm.send(mine, server)
    result = x.clone()
    for server in range(servers):
        if comm.rank == server:
            for other in range(comm.size):
                if other != server:
                    comm.send(result, other)
        else:
            comm.recv(x, server)


@wrong(
    SERVER,
    "one server whatever was asked",
    fails=("each_server_has_its_share", "servers_work_at_once"),
    says="Rank 0 serves alone",
)
def parameter_server_all_reduce(x, comm, servers=1):
    if comm.rank == 0:
        incoming = torch.empty_like(x)
        for source in range(1, comm.size):
            comm.recv(incoming, source)
            x += incoming
        for dest in range(1, comm.size):
            comm.send(x, dest)
    else:
        comm.send(x, 0)
        comm.recv(x, 0)


@wrong(SERVER, "a server forgets its own x", fails=ALL_OF_SERVERS, says="the x of rank 0 is missing")
def parameter_server_all_reduce(x, comm, servers=1):
    shares = x.tensor_split(servers)
    others = [(comm.rank + d) % comm.size for d in range(1, comm.size)]
    requests = [comm.isend(shares[other], other) for other in others if other < servers]
    if comm.rank < servers and others:
        incoming = torch.empty_like(shares[comm.rank])
        shares[comm.rank].zero_()
        for other in reversed(others):
            comm.recv(incoming, other)
            shares[comm.rank].add_(incoming)
    for request in requests:
        request.wait()
    requests = [comm.isend(shares[comm.rank], other) for other in others if comm.rank < servers]
    for other in reversed(others):
        if other < servers:
            comm.recv(shares[other], other)
    for request in requests:
        request.wait()


@wrong(
    SERVER,
    "drops the rest where servers do not divide n",
    fails=("several_servers", "each_server_has_its_share", "servers_work_at_once"),
    says="is missing",
)
def parameter_server_all_reduce(x, comm, servers=1):
    m = len(x) // servers
    shares = [x[i * m : (i + 1) * m] for i in range(servers)]
    others = [(comm.rank + d) % comm.size for d in range(1, comm.size)]
    requests = [comm.isend(shares[other], other) for other in others if other < servers]
    if comm.rank < servers:
        incoming = torch.empty_like(shares[comm.rank])
        for other in reversed(others):
            comm.recv(incoming, other)
            shares[comm.rank].add_(incoming)
    for request in requests:
        request.wait()
    requests = [comm.isend(shares[comm.rank], other) for other in others if comm.rank < servers]
    for other in reversed(others):
        if other < servers:
            comm.recv(shares[other], other)
    for request in requests:
        request.wait()


# --------------------------------------------------------------------------------------------- hierarchical

NODES = "collectives.hierarchical_all_reduce"


@wrong(
    NODES,
    "no nodes at all",
    fails=("one_leader_per_node", "trees_inside"),
    says="Sum inside the node first",
)
def hierarchical_all_reduce(x, comm, per_node=4):
    ring_all_reduce(x, comm)


@wrong(NODES, "takes the last node for a full one", fails=ALL_OF_NODES, says="each of its ranks once, out of 0 to")
def hierarchical_all_reduce(x, comm, per_node=4):
    first = comm.rank // per_node * per_node
    node = Group(comm, range(first, first + per_node))
    reduce(x, node, 0)
    if comm.rank == first:
        ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
    broadcast(x, node, 0)


@wrong(NODES, "tells the leaders only", fails=ALL_OF_NODES, says="is missing")
def hierarchical_all_reduce(x, comm, per_node=4):
    first = comm.rank // per_node * per_node
    reduce(x, Group(comm, range(first, min(first + per_node, comm.size))), 0)
    if comm.rank == first:
        ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))


@wrong(NODES, "a star inside", fails="trees_inside", says="messages follow one another")
def hierarchical_all_reduce(x, comm, per_node=4):
    first = comm.rank // per_node * per_node
    members = range(first + 1, min(first + per_node, comm.size))
    if comm.rank != first:
        comm.send(x, first)
        comm.recv(x, first)
        return
    incoming = torch.empty_like(x)
    for member in members:
        comm.recv(incoming, member)
        x += incoming
    ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
    for member in members:
        comm.send(x, member)


@wrong(
    NODES,
    "everyone speaks for the node",
    fails=("one_leader_per_node", "little_between_nodes", "trees_inside"),
    says="all talk to other nodes",
)
def hierarchical_all_reduce(x, comm, per_node=4):
    first = comm.rank // per_node * per_node
    node = Group(comm, range(first, min(first + per_node, comm.size)))
    ring_all_reduce(x, node)
    if comm.size % per_node:  # counterparts exist in full nodes alone
        if comm.rank == first:
            ring_all_reduce(x, Group(comm, range(0, comm.size, per_node)))
        broadcast(x, node, 0)
    else:
        ring_all_reduce(x, Group(comm, range(comm.rank % per_node, comm.size, per_node)))


# ------------------------------------------------------------------------------------------------------ cost


@wrong(
    "collectives.cost",
    "the ring sends all of x",
    fails=("naive_ring_and_tree", "server_and_nodes"),
    says="A ring sends chunks",
)
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + nbytes * beta, p.bit_length() - 1
    fold = 2 * message if p > 2**k else 0.0
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (p - 1) * message,
        "ring": 2 * (p - 1) * message,
        "tree": 2 * (p - 1).bit_length() * message,
        "recursive_doubling": k * message + fold,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * nbytes * beta + fold,
    }[algorithm]


@wrong(
    "collectives.cost",
    "rounds that are not whole",
    fails=("naive_ring_and_tree", "server_and_nodes"),
    says="has to be rounded up",
)
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + nbytes * beta, p.bit_length() - 1
    fold = 2 * message if p > 2**k else 0.0
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (p - 1) * message,
        "ring": 2 * (p - 1) * (alpha + nbytes / p * beta),
        "tree": 2 * math.log2(p) * message,
        "recursive_doubling": k * message + fold,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * nbytes * beta + fold,
    }[algorithm]


@wrong(
    "collectives.cost",
    "forgets the ranks beyond a power of two",
    fails="doubling_for_any_p",
    says="they add two messages of nbytes",
)
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + nbytes * beta, p.bit_length() - 1
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (p - 1) * message,
        "ring": 2 * (p - 1) * (alpha + nbytes / p * beta),
        "tree": 2 * (p - 1).bit_length() * message,
        "recursive_doubling": k * message,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * nbytes * beta,
    }[algorithm]


@wrong("collectives.cost", "the lecture's parameter server", fails="server_and_nodes", says="shares the latency of all")
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + nbytes * beta, p.bit_length() - 1
    fold = 2 * message if p > 2**k else 0.0
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (alpha + (p - 1) * nbytes * beta) if p > 1 else 0.0,
        "ring": 2 * (p - 1) * (alpha + nbytes / p * beta),
        "tree": 2 * (p - 1).bit_length() * message,
        "recursive_doubling": k * message + fold,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * nbytes * beta + fold,
    }[algorithm]


@wrong(
    "collectives.cost",
    "counts bits",
    fails=("naive_ring_and_tree", "doubling_for_powers_of_two", "doubling_for_any_p", "server_and_nodes"),
    says="no factor 4 for floats, 8 for bits",
)
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + 8 * nbytes * beta, p.bit_length() - 1
    fold = 2 * message if p > 2**k else 0.0
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (p - 1) * message,
        "ring": 2 * (p - 1) * (alpha + 8 * nbytes / p * beta),
        "tree": 2 * (p - 1).bit_length() * message,
        "recursive_doubling": k * message + fold,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * 8 * nbytes * beta + fold,
    }[algorithm]


# -------------------------------------------------------------------------------------------- fit_alpha_beta


@wrong(
    "collectives.fit_alpha_beta",
    "ordinary least squares",
    fails=("small_messages_count", "outliers_do_not"),
    says="This is ordinary least squares",
)
def fit_alpha_beta(nbytes, seconds):
    rows = torch.stack([torch.ones_like(nbytes), nbytes], dim=1)
    alpha, beta = torch.linalg.lstsq(rows, seconds).solution.tolist()
    return alpha, beta


@wrong("collectives.fit_alpha_beta", "means for medians", fails="outliers_do_not", says="takes the mean of each size")
def fit_alpha_beta(nbytes, seconds):
    sizes = nbytes.unique()
    typical = torch.stack([seconds[nbytes == size].mean() for size in sizes])
    rows = torch.stack([torch.ones_like(sizes), sizes], dim=1) / typical[:, None]
    alpha, beta = torch.linalg.lstsq(rows, torch.ones_like(typical)).solution.tolist()
    return alpha, beta


@wrong("collectives.fit_alpha_beta", "beta first", fails=ALL_OF_FIT, says="The two are swapped")
def fit_alpha_beta(nbytes, seconds):
    sizes = nbytes.unique()
    typical = torch.stack([seconds[nbytes == size].median() for size in sizes])
    rows = torch.stack([sizes, torch.ones_like(sizes)], dim=1) / typical[:, None]
    beta, alpha = torch.linalg.lstsq(rows, torch.ones_like(typical)).solution.tolist()
    return beta, alpha


# -------------------------------------------------------------------------------------------- best_algorithm

NOT_BEST = ("the_cheapest", "changes_at_the_crossover")


@wrong("collectives.best_algorithm", "the maximum", fails=NOT_BEST, says="This is the dearest of all")
def best_algorithm(p, nbytes, alpha, beta, cost):
    names = ("naive", "ring", "tree", "recursive_doubling", "rabenseifner", "parameter_server", "hierarchical")
    return max(names, key=lambda name: cost(name, p, nbytes, alpha, beta))


@wrong("collectives.best_algorithm", "bytes alone", fails=NOT_BEST, says="It sends the fewest bytes")
def best_algorithm(p, nbytes, alpha, beta, cost):
    names = ("rabenseifner", "ring", "naive", "tree", "recursive_doubling", "parameter_server", "hierarchical")
    return min(names, key=lambda name: cost(name, p, nbytes, 0.0, beta))


@wrong(
    "collectives.best_algorithm",
    "a minus too many",
    fails=("crossover_in_bytes", "some_never_cross", "changes_at_the_crossover"),
    says="a size is positive",
)
def crossover(first, second, p, alpha, beta, cost):
    messages = cost(first, p, 0, alpha, beta) - cost(second, p, 0, alpha, beta)
    per_byte = cost(first, p, 1, 0, beta) - cost(second, p, 1, 0, beta)
    return messages / per_byte if messages * per_byte < 0 or per_byte else math.inf


@wrong("collectives.best_algorithm", "divides by no difference", fails="some_never_cross", says="ZeroDivisionError")
def crossover(first, second, p, alpha, beta, cost):
    messages = cost(first, p, 0, alpha, beta) - cost(second, p, 0, alpha, beta)
    per_byte = cost(second, p, 1, 0, beta) - cost(first, p, 1, 0, beta)
    return messages / per_byte


@wrong(
    "collectives.best_algorithm",
    "meets below zero",
    fails="some_never_cross",
    says="do not meet at any size above 0",
)
def crossover(first, second, p, alpha, beta, cost):
    messages = cost(first, p, 0, alpha, beta) - cost(second, p, 0, alpha, beta)
    per_byte = cost(second, p, 1, 0, beta) - cost(first, p, 1, 0, beta)
    return messages / per_byte if per_byte else math.inf
