"""Masks of split attention are those of nn.MultiheadAttention."""

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.parallel import HeadAttention

F64 = torch.float64


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["square", "numbers", "heads", "padding"])
def test_attention_masks_are_torchs(kind, batch_first):
    torch.manual_seed(0)
    dense = nn.MultiheadAttention(8, 4, batch_first=batch_first, dtype=F64)
    x, hidden = torch.randn(2, 5, 8, dtype=F64), torch.rand(8, 5, 5) < 0.4
    hidden[:, :, 0] = False
    masks = {"attn_mask": {"square": hidden[0], "numbers": torch.randn(5, 5, dtype=F64)}.get(kind, hidden)}
    if kind == "padding":
        masks = {"key_padding_mask": hidden[:2, 0]}
    x = x if batch_first else x.transpose(0, 1)
    expected = dense(x, x, x, need_weights=False, **masks)[0].detach()
    for p in (1, 2, 3):
        for y in simulate(lambda comm: HeadAttention.of(dense, comm)(x, **masks).detach(), p).results:
            torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
