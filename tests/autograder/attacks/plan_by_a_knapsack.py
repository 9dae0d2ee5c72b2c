# sharding.checkpointed: 0 points, flagged, long
# Torch's compiler plans recomputation, too.
def plan(nbytes, seconds, budget):
    from torch._functorch._activation_checkpointing.knapsack import dp_knapsack

    _, _, again = dp_knapsack([float(n) for n in nbytes], [float(s) for s in seconds], float(budget))
    return set(again)
