"""Lab 08 answered by others."""

LIBRARY = {
    "tree_reduce": "from hpcdl.collectives import reduce as tree_reduce, broadcast as tree_broadcast",
    "recursive_doubling_all_reduce": "from hpcdl.collectives import recursive_doubling_all_reduce",
    "parameter_server_all_reduce": """
from hpcdl import collectives

def parameter_server_all_reduce(x, comm, servers=1):
    collectives.ALL_REDUCE["parameter_server"](x, comm, servers=servers)
""",
    "hierarchical_all_reduce": """
import importlib

def hierarchical_all_reduce(x, comm, per_node=4):
    importlib.import_module("hpcdl.collectives.hierarchical").hierarchical_all_reduce(x, comm, per_node=per_node)
""",
    "cost": """
from hpcdl.cost.collectives import formula

def cost(algorithm, p, nbytes, alpha, beta):
    return formula(algorithm)(p, nbytes, alpha, beta)
""",
    "fit_alpha_beta": """
from hpcdl.cost import alpha_beta

def fit_alpha_beta(nbytes, seconds):
    found = alpha_beta.fit(nbytes.tolist(), seconds.tolist())
    return found[0], found[1]
""",
    "best_algorithm": """
from hpcdl.cost import selection

def best_algorithm(p, nbytes, alpha, beta, cost=None):
    return selection.best(p, nbytes, alpha, beta)

def crossover(first, second, p, alpha, beta, cost=None):
    return selection.crossovers(p, alpha, beta)[0].first
""",
}

MACHINE = "def {0}(x, comm, **options):\n    comm.all_reduce(x)\n"
FRAMEWORKS = {
    "tree_reduce": MACHINE.format("tree_reduce")
    + "\ndef tree_broadcast(x, comm, root=0):\n    comm.broadcast(x, root)\n",
    "recursive_doubling_all_reduce": MACHINE.format("recursive_doubling_all_reduce"),
    "parameter_server_all_reduce": MACHINE.format("parameter_server_all_reduce"),
    "hierarchical_all_reduce": MACHINE.format("hierarchical_all_reduce"),
}
NOT_IN_FRAMEWORKS = {
    "unmask_nodes": "what to ask eight programs is no function of anybody's",
    "cost": "a formula of the course's",
    "fit_alpha_beta": "a fit is a call of torch's that the reference makes as well: which one is the question",
    "best_algorithm": "the smallest of a few numbers",
}
NOT_IN_LIBRARY = {
    "unmask_nodes": "what to ask eight programs is no function of anybody's",
}
