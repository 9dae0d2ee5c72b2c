"""Families of compiled operators and packages that could be an answer by themselves.

Each exercise opens the families that its right answers use, and closes the others: `autograder/exercises/families.json`
has its row, which `python -m autograder.grading.families` derives. Operators that work element by element, and shapes,
indices, sums, sorting, products, solvers and Fourier transforms belong to no family: every answer may use them.
No operator is in two families, so closing one closes nothing of another.

Torch has many operators a second time, in Python, for its own compilers and exporters: they are a family, too. So are
its tools, which count, quantize, arrange and test for other code, and all packages that no right answer needs.
"""

OTHERS = "other packages"  # a pattern that stands for all of them: see `packages`
TOOLS = tuple(  # libraries may call these for themselves
    f"torch.{name}"
    for name in (
        "ao", "quantization", "nn.quantized", "nn.quantizable", "nn.intrinsic", "nn.qat", "profiler",
        "autograd.profiler.profile", "utils.flop_counter", "utils.benchmark", "utils.bottleneck", "onnx", "testing",
        "masked", "signal", "distributions", "contrib", "sparse", "nested", "_prims", "_numpy", "_inductor",
        "_higher_order_ops", "distributed.pipelining",
    )
)  # fmt: skip
STANDARD = ("graphlib", "statistics", "textwrap")  # of Python's library

FAMILIES: dict[str, tuple[str, ...]] = {
    "networks": (
        *(
            f"aten::*{name}*"
            for name in (
                "conv[!e]", "pool[1-3_]", "batch_norm", "group_norm", "layer_norm", "rms_norm", "weight_norm",
                "embedding_bag", "upsample", "grid_sampler", "affine_grid", "pixel_shuffle", "pixel_unshuffle",
                "channel_shuffle", "_loss", "lstm", "_gru", "_rnn",
            )
        ),
        *(
            f"torch.nn.functional.{name}"  # in Python
            for name in ("gaussian_nll_loss", "poisson_nll_loss", "triplet_margin_with_distance_loss", "normalize")
        ),
        *(
            f"aten::{name}*"
            for name in (
                "binary_cross_entropy", "celu", "elu", "gelu", "glu", "hardsigmoid", "hardswish", "hardtanh",
                "hardshrink", "leaky_relu", "log_sigmoid", "mish", "_prelu", "rrelu", "silu", "softplus", "softshrink",
            )
        ),
    ),
    "attention": ("aten::*attention*", "aten::_fused_sdp*", "aten::_transform*", "aten::_safe_softmax*"),
    "optimizers": ("aten::_fused_ad*", "aten::_fused_sgd*", "aten::_amp_*"),
    "special": ("aten::special_*",),
    "quantized": ("aten::*quantize_*", "aten::_dyn_quant*", "quantized::*", "_quantized::*", "quantized_decomposed::*"),
    "backends": ("onednn::*", "mkldnn*::*", "mkl::*", "static_runtime::*", "inductor*::*", "sparse::*"),
    "sparse": ("aten::_sparse_*softmax*", "aten::_nested_*softmax*", "aten::*segment_reduce*"),
    "internal": ("torch._refs", "torch._decomp.decompositions", "torch._functorch._activation_checkpointing"),
    "scipy": ("scipy",),
    "sklearn": ("sklearn",),
    "packages": (OTHERS,),
    "tools": TOOLS,
    "standard": STANDARD,
}  # fmt: skip


def closed(opened: list[str]) -> tuple[str, ...]:
    """Return the patterns of all families except the `opened` ones."""
    return tuple(pattern for name, patterns in FAMILIES.items() if name not in opened for pattern in patterns)
