"""What torch and others have ready, for exercises whose point is to write it: `forbid=` takes these."""

DERIVATIVES = (  # every way to them that starts in Python
    "torch.autograd.backward",
    "torch.autograd.grad",
    "torch.autograd.graph._engine_run_backward",
    "torch.autograd.functional",
    "torch.autograd.gradcheck",
    "torch.autograd.forward_ad",
    "torch._functorch.eager_transforms",
    "scipy.optimize",
    "scipy.differentiate",
)
OPTIMIZERS = ("torch.optim",)
UPDATES = (  # all of them, but for torch.optim's hooks, by which the memory meter learns of states
    "torch.optim.optimizer.Optimizer.__init__",
    "torch.optim._functional",
    "torch.optim.adam",
    "torch.optim.adamw",
)
LOADERS = ("torch.utils.data",)
RANKS = ("torch.distributed.distributed_c10d", "torch.nn.parallel")
MACHINES_COLLECTIVES = ("hpcdl.comm.base.Communicator.all_reduce", "hpcdl.comm.base.Communicator.broadcast")
SHARDING = (
    *RANKS,
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.checkpoint",
    "torch.distributed.tensor",
    "torch.distributed._composable",
)
CLIPPING = ("torch.nn.utils.clip_grad",)
RECOMPUTATION = ("torch.utils.checkpoint", "torch.distributed.algorithms._checkpoint")
ATTENTION = ("aten::_scaled_dot_product*", "aten::_safe_softmax")  # fused; else torch takes this softmax, alone
SOFTMAX = ("aten::_softmax", "aten::_log_softmax", "aten::nll_loss_forward")

BY_HAND = "The derivative is what you write here: no autograd, no finished finite differences."
