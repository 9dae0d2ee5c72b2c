# stochastic_rounding.rounding_kernel: 0 points
# The function that launches the kernel is given; another one needs no kernel.


def launch(x, n, seed, block):
    return x[:n].bfloat16()
