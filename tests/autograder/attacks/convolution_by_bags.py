# convolution.conv_direct: 0 points, flagged, long
# Bags of pixels, each with the filter's weights: the sum is one operator.
import torch


def conv_direct(x, w, stride=1, padding=0):
    x = torch.nn.functional.pad(x, [padding] * 4)
    n, c = x.shape[:2]
    k, _, r, s = w.shape
    places = torch.arange(x.numel()).view(x.shape).unfold(2, r, stride).unfold(3, s, stride)
    places = places.permute(0, 2, 3, 1, 4, 5)
    bags = places.reshape(-1, c * r * s)
    found = [
        torch.nn.functional.embedding_bag(
            bags, x.reshape(-1, 1), mode="sum", per_sample_weights=f.reshape(1, -1).expand(len(bags), -1).contiguous()
        )
        for f in w
    ]
    return torch.stack(found, 0).view(k, n, *places.shape[1:3]).transpose(0, 1).contiguous()
