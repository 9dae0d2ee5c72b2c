"""Wrong answers to lab `attention`."""

from autograder.bank.attention import (
    attention,
    block_work,
    heads,
    moe,
    online_softmax,
    ring_attention,
    route,
)
