"""Wrong answers to `parameter_server_all_reduce`."""

import torch

from autograder.bank.slips import answers_to

ALL_OF_SERVERS = ("one_server", "several_servers", "each_server_has_its_share", "servers_work_at_once")
wrong, slip = answers_to("collectives.parameter_server_all_reduce")


@wrong("one share after the other", fails="servers_work_at_once", says="Some server waits while others are busy")
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


@wrong("everyone queues at server 0 first", fails="servers_work_at_once", says="let rank r send to r + d in")
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
    "one server whatever was asked",
    fails=("several_servers", "each_server_has_its_share", "servers_work_at_once"),
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


slip(
    "a server forgets its own x",
    "if comm.rank < servers:\n        incoming = torch.empty_like(shares[comm.rank])",
    "if comm.rank < servers and others:\n"
    "        incoming = torch.empty_like(shares[comm.rank])\n"
    "        shares[comm.rank].zero_()",
    fails=ALL_OF_SERVERS,
    says="the x of rank 0 is missing",
)
slip(
    "drops the rest where servers do not divide n",
    "shares = x.tensor_split(servers)",
    "m = len(x) // servers\n    shares = [x[i * m : (i + 1) * m] for i in range(servers)]",
    fails=("several_servers", "each_server_has_its_share", "servers_work_at_once"),
    says="is missing",
)
slip(
    "never waits for what it sent",
    "requests = [comm.isend(shares[other], other) for other in others if other < servers]",
    "for other in others:\n        if other < servers:\n            comm.isend(shares[other], other)",
    "    for request in requests:\n"
    "        request.wait()\n"
    "    requests = [comm.isend(shares[comm.rank], other) for other in others if comm.rank < servers]",
    "        for other in others:\n            comm.isend(shares[comm.rank], other)",
    "comm.recv(shares[other], other)\n    for request in requests:\n        request.wait()",
    "comm.recv(shares[other], other)",
    fails="servers_work_at_once",
    says="wait() for each isend",
)


slip(
    "sends everything to everyone where servers do not divide n",
    "    shares = x.tensor_split(servers)\n",
    "    shares = x.tensor_split(servers)\n"
    "    if len(x) % servers:\n"
    "        own, incoming = x.clone(), torch.empty_like(x)\n"
    "        requests = [comm.isend(own, other) for other in range(comm.size) if other != comm.rank]\n"
    "        for other in range(comm.size):\n"
    "            if other != comm.rank:\n"
    "                comm.recv(incoming, other)\n"
    "                x += incoming\n"
    "        for request in requests:\n"
    "            request.wait()\n"
    "        return\n",
    fails=("each_server_has_its_share", "servers_work_at_once"),
    says="neither is a server",
)
slip(
    "several servers on some numbers of ranks only",
    "    shares = x.tensor_split(servers)\n",
    "    servers = servers if comm.size in (2, 3, 4, 5, 6, 8) else 1\n    shares = x.tensor_split(servers)\n",
    fails="each_server_has_its_share servers_work_at_once",
    says="Rank 0 is the only server",
)
slip(
    "takes turns on 8 ranks only",
    "range(1, comm.size)]\n",
    "range(1, comm.size)]\n    others = others if comm.size == 8 else sorted(others, reverse=True)\n",
    fails="servers_work_at_once",
    says="let rank r send to r + d",
)
