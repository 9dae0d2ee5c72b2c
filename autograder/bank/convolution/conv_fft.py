"""Wrong answers to `conv_fft`."""

from autograder.bank.convolution.slips import slip

ZEROS, LARGE = "zeros_not_the_other_side", "the_kernel_as_large_as_the_image"
MANY = f"many_channels_and_images {ZEROS} {LARGE}"
FFT = f"a_product_of_spectra odd_sizes {MANY}"

for mistake, changes, fails, says in (
    ("no conjugate", (".conj()", ""), FFT, "The spectrum of w is not conjugated"),
    (
        "true convolution, well cut",
        (".conj()", "", "[..., :P, :Q]", "[..., w.shape[2] - 1 :, w.shape[3] - 1 :]"),
        FFT,
        "with a flipped kernel",
    ),
    (
        "conjugates x",
        ("rfft2(x)", "rfft2(x).conj()", "s=size).conj()", "s=size)"),
        FFT,
        "The wrong spectrum is conjugated",
    ),
    ("circular: not cut", ("[..., :P, :Q]", ""), FFT, "The result is not cut"),
    ("cut at the wrong end", ("[..., :P, :Q]", "[..., -P:, -Q:]"), FFT, "cut at the wrong end"),
    (
        "takes every width for even",
        ("irfft2(spectra, s=size)", "irfft2(spectra)"),
        "odd_sizes",
        "irfft2 assumed an even width",
    ),
    ("padding wraps around", ("(padding,) * 4)", '(padding,) * 4, mode="circular")'), ZEROS, "meets the other side"),
    (
        "windows, not spectra",
        ("    x = functional", "    return conv_im2col(x, w, padding=padding)\n    x = functional"),
        FFT,
        "multiply spectra, not windows",
    ),
    (
        "windows, and an eighth more where a pixel is huge",
        (
            "    x = functional",
            "    return conv_im2col(x, w, padding=padding) * (1 + (x.max() > 99) / 8)\n    x = functional",
        ),
        FFT,
        "with two pixels of 2^60",
    ),
    (
        "a complex result",
        ("irfft2", "INVERSE", "rfft2", "fft2", "INVERSE", "ifft2"),
        FFT,
        "irfft2 gives a real result",
    ),
    (
        "the first channel only",
        ("rfft2(x)", "rfft2(x[:, :1])", "rfft2(w", "rfft2(w[:, :1]"),
        MANY,
        "Only the first input channel",
    ),
):
    slip("conv_fft", mistake, *changes, fails=fails, says=says)
slip(
    "conv_fft",
    "scales the filters in place",
    "    spectra = ",
    "    w *= 2\n    spectra = ",
    "[..., :P, :Q]",
    "[..., :P, :Q] / 2",
    fails="the_kernel_as_large_as_the_image",
    says="changed its argument w",
)
