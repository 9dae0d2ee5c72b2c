# convolution.conv_direct: 0 points, flagged
# Frequency 0 of a spectrogram, whose window is a row of the filter.
import torch


def conv_direct(x, w, stride=1, padding=0):
    x = torch.nn.functional.pad(x, (padding,) * 4)
    (n, channels, h, wide), (k, _, r, s) = x.shape, w.shape
    y = x.new_zeros(n, k, h - r + 1, wide - s + 1)
    for f in range(k):
        for c in range(channels):
            for i in range(r):
                rows, window = x[:, c, i : i + y.shape[2]].reshape(-1, wide), w[f, c, i].contiguous()
                waves = torch.stft(rows, s, 1, s, window, center=False, return_complex=True)
                y[:, f] += waves[:, 0].real.view(n, *y.shape[2:])
    return y[:, :, ::stride, ::stride].contiguous()
