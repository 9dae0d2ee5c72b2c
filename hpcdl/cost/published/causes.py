"""Why predictions miss public figures by more than a tenth: `CAUSES`, by source and the beginning of the figure's
name."""

CAUSES: dict[tuple[str, str], str] = {
    ("GPipe", "Transformer, speed, K = 2, M = 4"): "cells differ in more than their schedule",
    ("GPipe", "Transformer"): "relative to K = 2, M = 1, whose batch was smaller to fit the memory",
    ("GPipe", "AmoebaNet"): "unequal layers: the longest stage sets the pace, and its time is not printed",
    ("PipeDream", "VGG-16, pipeline 2-1-1"): "the replicated stage sums gradients, which is left out",
    ("PipeDream", "VGG-16, synchronous"): "what servers do for each byte is Caffe's; here it is slower, and grows",
    ("Goyal et al. 2017", "ResNet-50, iteration"): "update, input and sums within a server are left out",
    ("Goyal et al. 2017", "ResNet-50 on a P100"): "derived from a backward pass of 120 ms, in another framework",
    ("NCCL over TCP", "100 Gb/s"): "the issue does not say why; more connections were slower there",
    ("TensorFlow", "AlexNet"): "one constant for all networks: without normalizations more is reached than with them",
    ("TensorFlow", "VGG-16"): "one constant for all networks: without normalizations more is reached than with them",
    ("NVIDIA", "ResNet-50 v1.5 on a V100, fp32"): "Pascal's constant: no other figure of a V100 in fp32 is public here",
    ("NVIDIA", "ResNet-50 v1.5 on a V100, fp16"): "the V100's constant is that of Megatron's products in 2019",
    (
        "NVIDIA",
        "ResNet-50 v1.5 on an A100, fp16",
    ): "residual sums and pools are left out, and weigh most on fast devices",
    ("Lecture", "ResNet-50 on a V100"): "the V100's constant is that of Megatron's products in 2019",
    ("Lecture", "ResNet-50 on a P40"): "one constant for all networks and Pascal GPUs",
    ("Horovod", "ResNet-101 on each"): "16 GPUs of 4 servers; which Pascal GPU is not said",
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
    """Return the cause of the first matching entry, or an empty string."""
    return next((why for (name, start), why in CAUSES.items() if name == source and what.startswith(start)), "")
