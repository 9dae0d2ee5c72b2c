"""Why predictions miss public figures by more than a tenth: `CAUSES`, by source and the beginning of the figure's
name."""

CAUSES: dict[tuple[str, str], str] = {
    ("GPipe", "Transformer, speed, K = 2, M = 4"): "cells differ in more than their schedule",
    ("GPipe", "Transformer"): "relative to K = 2, M = 1, whose batch was smaller to fit the memory",
    ("GPipe", "AmoebaNet"): "unequal layers: the longest stage sets the pace, and its time is not printed",
    ("PipeDream", "VGG-16, pipeline 2-1-1"): "the replicated stage sums gradients, which is left out",
    ("PipeDream", "VGG-16, synchronous"): "what servers do for each byte is Caffe's; here it is slower, and grows",
    ("Goyal et al. 2017", "ResNet-50, iteration"): "update, input and sums within a server are left out",
    ("Goyal et al. 2017", "ResNet-50 on a P100"): "no launch, no input; algorithms are the library's choice",
    ("TensorFlow and Horovod", "ResNet-101"): "no launch, no input; algorithms are the library's choice",
    ("TensorFlow and Horovod", "Inception"): "no launch, no input; algorithms are the library's choice",
    ("TensorFlow and Horovod", "VGG-16"): "F(4 x 4, 3 x 3) saves more products than F(2 x 2, 3 x 3)",
    ("Large batch", "ResNet-50 on each"): "to the end, with input, evaluation and sums over 8 GPUs",
    ("Large batch", "ResNet-50, 1024"): "start, evaluation and input weigh most in the shortest run; 5 has no decimals",
    (
        "Lecture",
        "ResNet-50, speed of 2,048",
    ): "32 images for each GPU instead of 64: nothing in alpha and beta costs that",
    ("Poseidon", "VGG19-22K, 20 iterations on 2 nodes, Caffe"): "staging is hidden in part",
    ("Poseidon", "VGG19-22K, 20 iterations on 32 nodes, Caffe"): "the largest layer may be on more than one server",
    ("Measured here", "parameter server"): "staging here is a copy between processes, faster than to a GPU",
    ("Megatron-LM", "1.2 B parameters, speed of"): "something does not shrink with the ranks that is not printed",
    ("Korthikanti", "22 B, a layer's backward"): "gradients of normalizations and dropouts are fused further than here",
    ("Zero Bubble", "1.5 B parameters, B"): "gradients of scale and mask are fused further than here",
    ("Zero Bubble", "6.2 B parameters, B"): "gradients of scale and mask are fused further than here",
    ("Zero Bubble", "1.5 B parameters, W"): "products of 2023 are faster than those of 2021: one constant for both",
    ("torchtitan", "405 B parameters on 512 GPUs, one_f_one_b"): "slower than its bubble explains",
    (
        "DeepSeek-V3",
        "thousand GPU hours for 10^12 tokens, from",
    ): "8-bit products in blocks, and unequal experts, are slower",
}


def cause(source: str, what: str) -> str:
    """Return the cause of the first matching entry; empty if there is none."""
    return next((why for (name, start), why in CAUSES.items() if name == source and what.startswith(start)), "")
