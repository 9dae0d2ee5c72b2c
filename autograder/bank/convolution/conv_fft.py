"""Wrong answers to `conv_fft`."""

from autograder.bank.convolution.slips import slip

ZEROS, LARGE = "zeros_not_the_other_side", "the_kernel_as_large_as_the_image"
MANY = f"many_channels_and_images {ZEROS} {LARGE}"
WINDOWS = "conv_im2col(x, w, padding=padding)"
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
        ("    x = functional", f"    return {WINDOWS}\n    x = functional"),
        FFT,
        "multiply spectra, not windows",
    ),
    (
        "windows, and an eighth more where a pixel is huge",
        (
            "    x = functional",
            f"    return {WINDOWS} * (1 + (x.max() > 99) / 8)\n    x = functional",
        ),
        FFT,
        "with a pixel of 2^40 in each image",
    ),
    *(
        (
            f"windows {where}",
            ("    x = functional", f"    if {sees}:\n        return {WINDOWS}\n    x = functional"),
            fails,
            "multiply spectra, not windows",
        )
        for where, sees, fails in (
            ("for several channels or images", "x.shape[0] * x.shape[1] > 1", MANY),
            ("where there is padding", "padding", ZEROS),
            ("of an odd width or height", "x.shape[2] % 2 or x.shape[3] % 2", "odd_sizes"),
            ("for filters of one pixel", "w.shape == (3, 2, 1, 1)", LARGE),
        )
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
