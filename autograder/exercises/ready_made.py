"""What torch and others have ready, for exercises whose point is to write it: `forbid=` takes these."""

DERIVATIVES = (  # every way to them that starts in Python
    "torch.autograd.backward",
    "torch.autograd.grad",
    "torch.autograd.graph",
    "aten::_make_dual*",
    "aten::_fw_primal*",
    "torch.autograd.functional",
    "torch.autograd.gradcheck",
    "torch.autograd.forward_ad",
    "torch._functorch.eager_transforms",
    "aten::*_backward*",  # formulas that the engine calls
    "aten::_backward",
    "aten::*_jvp*",
    "torch.jit._script",
    "torch._C._jit_differentiate",
    "torch._decomp",
    "aten::gradient",
    "numpy.gradient",
    "numpy.polyfit",
    "numpy.polynomial",
    "scipy.optimize",
    "scipy.differentiate",
    "mpmath.calculus",
    "sympy",
)
FUSED = ("aten::_fused_adam*", "aten::_fused_adagrad*", "aten::_fused_sgd*")  # a step of an optimizer's in C
OPTIMIZERS = ("torch.optim", *FUSED)
BELLS = (  # half a cosine is one
    "aten::*_window*",
    *(f"numpy.{name}" for name in ("hanning", "hamming", "blackman", "bartlett", "kaiser")),
)
UPDATES = (  # all of them, except torch.optim's hooks, by which the memory meter learns of states
    "torch.optim.optimizer.Optimizer.__init__",
    "torch.optim._functional",
    "torch.optim.adam",
    "torch.optim.adamw",
    *FUSED,
)
COUNTERS = (  # of operations and memory, while they run
    "torch.utils.flop_counter",
    "torch.profiler.profiler",
    "torch.autograd.profiler.profile.__init__",
    "torch.autograd.profiler_legacy",
    "torch._C._autograd._enable_profiler",
    "torch._C._autograd._enable_profiler_legacy",
    "torch._C._profiler._add_execution_trace_observer",
    "torch.distributed._tools",
    "numpy.einsum_path",
    "numpy._core.einsumfunc._flop_count",
)
PIPELINES = ("torch.distributed.pipelining",)
LOADERS = ("torch.utils.data",)
RANKS = ("torch.distributed.distributed_c10d", "torch.nn.parallel")
C10D = "torch._C._distributed_c10d._compute_bucket_assignment_by_size"
LINES = (  # they fill lines, as buckets are filled
    *("pprint", "email", "argparse", "optparse", "cmd", "distutils.fancy_getopt"),
    *("IPython.utils.text", "IPython.lib.pretty", "numpy._core.arrayprint", "pandas.io.formats", "rich"),
)
BUCKETS = ("torch._utils._take_tensors", C10D, *LINES)  # tensors in groups of a size
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
RECOMPUTATION = (
    "torch.utils.checkpoint",
    "torch.distributed.algorithms._checkpoint",
    "torch.autograd.graph.saved_tensors_hooks.__init__",  # memory that is moved elsewhere, where no meter sees it
    "torch.autograd.graph.save_on_cpu.__init__",
)
ATTENTION = ("aten::_scaled_dot_product*", "aten::_safe_softmax")  # fused; else torch takes this softmax, alone
TRANSFORMERS = (
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.modules.activation.MultiheadAttention.forward",
    "torch.nn.modules.transformer",
    "torch.nn.attention",
    "torch.ao.nn",
    "torch._decomp",
    "aten::_native_multi_head_attention*",
    "aten::_transformer_encoder_layer_fwd*",
)
LOGARITHMS = (  # of sums of exp
    *("aten::logaddexp*", "aten::*logsumexp", "aten::*logcumsumexp", "numpy.logaddexp", "numpy.logaddexp2"),
)
OF_TRITON = "triton.language.standard"  # what it has ready for kernels
SOFTMAX = ("aten::*softmax*", "aten::nll_loss*", "scipy.special", "torch.distributions", OF_TRITON)
LOGISTIC = (
    *("aten::*sigmoid*", "aten::glu*", "aten::silu*", "aten::*softmax*"),
    *LOGARITHMS,
    *("scipy.special", "scipy.stats", OF_TRITON),
)

BY_HAND = "The derivative is what you write here: no autograd, no finished finite differences."
