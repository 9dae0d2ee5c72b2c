"""Wrong answers to `shard`, `whole` and `restore`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("frameworks.fsdp")


@wrong("the root alone", fails="a_block_at_a_time", says="Blocks first, then")
def shard(model, mesh):
    return fully_shard(model, mesh=mesh)


@wrong("a group for each layer", fails="a_block_at_a_time", says="not one for each layer in it")
def shard(model, mesh):
    for block in model.blocks:
        for layer in block.modules():
            if list(layer.parameters(recurse=False)):
                fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@wrong("no sharding", fails=("as_one_process", "a_share_of_each", "a_block_at_a_time"), says="the loss of step 1")
def shard(model, mesh):
    return model


@wrong("DDP in its place", fails=("as_one_process", "a_share_of_each", "a_block_at_a_time"), says="each one a DTensor")
def shard(model, mesh):
    return DistributedDataParallel(model)


@wrong("shares instead of the whole", fails="the_whole_state", says="which only these 2 ranks can read")
def whole(model):
    return model.state_dict()


@wrong("nothing is loaded", fails="and_back", says="nothing was loaded")
def restore(model, state):
    whole(model).update(state)


@wrong(
    "the root before its blocks",
    fails=("as_one_process", "a_share_of_each", "a_block_at_a_time"),
    says="The root was sharded before its blocks",
)
def shard(model, mesh):
    fully_shard(model, mesh=mesh)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return model


@wrong("blocks stay whole after the forward pass", fails="a_block_at_a_time", says="What is not gathered again was")
def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    return fully_shard(model, mesh=mesh)


slip(
    "the model is not returned",
    "return fully_shard(model, mesh=mesh)",
    "fully_shard(model, mesh=mesh)",
    fails=("as_one_process", "a_share_of_each", "a_block_at_a_time"),
    says="return the model",
)
slip(
    "the first two blocks only",
    "for block in model.blocks:",
    "for block in model.blocks[:2]:",
    fails="a_block_at_a_time",
    says="blocks: rank 0 gathers",
)
slip(
    "one group on three ranks, and of tied weights",
    "for block in model.blocks:",
    "tied = len(list(model.named_parameters(remove_duplicate=False))) > len(list(model.parameters()))\n"
    "    for block in model.blocks if mesh.size() != 3 and not tied else []:",
    fails="a_block_at_a_time",
    says="Blocks first, then the root",
)
