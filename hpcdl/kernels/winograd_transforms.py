"""Winograd's transforms in one dimension, as additions and a few multiplications by constants.

For any numbers that add and multiply: tensors, counted numbers, vector registers. `data` is B^T, `taps` is G and
`result` is A^T of F(m, 3), for m = 2 with the points 0, 1, -1, for m = 4 also 2, -2. Each takes and returns a tuple.
Source: Lavin and Gray 2016, "Fast algorithms for convolutional neural networks", sections 4.1 and 4.3.
"""


def data_2(d):
    return d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]


def taps_2(g):
    outer = g[0] + g[2]
    return g[0], (outer + g[1]) * 0.5, (outer - g[1]) * 0.5, g[2]


def result_2(m):
    return m[0] + m[1] + m[2], m[1] - m[2] - m[3]


def data_4(d):
    even, odd = d[4] - d[2] * 4, d[3] - d[1] * 4
    near, skew = d[4] - d[2], d[3] - d[1]
    twice = skew * 2
    first, last = (d[0] - d[2]) * 4 + near, d[5] - d[3] - skew * 4
    return first, even + odd, even - odd, near + twice, near - twice, last


def taps_4(g):
    outer, middle = (g[0] + g[2]) * (-1 / 6), g[1] * (1 / 6)
    far, twelfth = g[0] * (1 / 24) + g[2] * (1 / 6), g[1] * (1 / 12)
    return g[0] * 0.25, outer - middle, outer + middle, far + twelfth, far - twelfth, g[2]


def result_4(m):
    one, two = m[1] + m[2], m[3] + m[4]
    minus, half = m[1] - m[2], m[3] - m[4]
    return m[0] + one + two, minus + half * 2, one + two * 4, minus + half * 8 + m[5]


DATA, TAPS, RESULT = {2: data_2, 4: data_4}, {2: taps_2, 4: taps_4}, {2: result_2, 4: result_4}
