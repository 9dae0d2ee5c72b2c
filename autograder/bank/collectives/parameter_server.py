"""Wrong answers to `parameter_server_all_reduce`."""

import torch

from autograder.authoring import wrong

ALL_OF_SERVERS = ("one_server", "several_servers", "each_server_has_its_share", "servers_work_at_once")
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
    says="Rank 0 is the only server",
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


@wrong(SERVER, "never waits for what it sent", fails="servers_work_at_once", says="wait() for each isend")
def parameter_server_all_reduce(x, comm, servers=1):
    shares = x.tensor_split(servers)
    others = [(comm.rank + d) % comm.size for d in range(1, comm.size)]
    for other in others:
        if other < servers:
            comm.isend(shares[other], other)
    if comm.rank < servers:
        incoming = torch.empty_like(shares[comm.rank])
        for other in reversed(others):
            comm.recv(incoming, other)
            shares[comm.rank].add_(incoming)
        for other in others:
            comm.isend(shares[comm.rank], other)
    for other in reversed(others):
        if other < servers:
            comm.recv(shares[other], other)
