"""What the compiler makes of the kernels for an A100, an H100 and an MI300, which no interpreter can tell.

Each build is of a launch as the public function makes it for a layer of a real network.
"""

from collections import Counter

import pytest
import torch

from hpcdl.kernels.ahead_of_time import TARGETS, Build, CompileReport, compile_ahead

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16


def image(dtype, channels=64):
    return torch.empty(8, channels, 56, 56, dtype=dtype, device="meta")


def filters(dtype, size=3, per_filter=64):
    return torch.empty(64, per_filter, size, size, dtype=dtype, device="meta")


def train(x, w, precision):
    from hpcdl.kernels.gpu.direct import forward, input_gradient, weight_gradient

    y = forward(x, w, x.shape[2:], (1, 1), (1, 1), 1, precision)
    input_gradient(y, w, x.shape, (1, 1), (1, 1), 1, precision)
    weight_gradient(x, y, w.shape, (1, 1), (1, 1), 1, precision)


def by_tiles(x, w):
    from hpcdl.kernels.gpu.winograd import transformed, winograd

    winograd(4, x, transformed(4, w), x.shape[2:], (1, 1))


def by_bands(x, w):
    from hpcdl.kernels.gpu.depthwise import depthwise

    depthwise(x, w, (15, 15))


def windows(x):
    from hpcdl.kernels.gpu.im2col import im2col

    im2col(x, (3, 3), x.shape[2:], (1, 1), (1, 1))


def build_of(launch, target, tile=None):
    """The build of a recorded launch, with the tile for the card instead of the interpreter's."""
    kernel, arguments, constants = launch
    blocks, warps, stages = tile or ({}, 4, 2)
    build = Build.of_launch(kernel, arguments, constants | blocks, target, warps, stages)
    types = {name: kind.replace("*u16", "*bf16") for name, kind in build.arguments.items()}  # the interpreter had bits
    return build._replace(arguments=types)


@pytest.fixture(scope="module")
def training(launches):
    """What is launched for the forward pass, the gradient of x and that of w, by the kind of their tiles."""
    return {
        "half": launches(train, image(FP16), filters(FP16), "fp32"),
        "bf16": launches(train, image(BF16), filters(BF16), "fp32"),
        "tf32": launches(train, image(FP32), filters(FP32), "tf32"),
        "ieee": launches(train, image(FP32), filters(FP32), "fp32"),
    }


@pytest.fixture(scope="module")
def reports(launches, training):
    """(case, target) -> report: every kernel for every target and every type once, all compiled at once."""
    from hpcdl.kernels.gpu.tiles import BANDS, PRODUCTS

    tile = {kind: next(tile for tile in tiles if tile.stages == 2) for kind, tiles in PRODUCTS.items()}
    winograd = launches(by_tiles, image(FP32), filters(FP32))
    (depthwise,) = launches(by_bands, image(FP16), filters(FP16, 31, 1))
    (im2col,) = launches(windows, image(FP16))
    (narrow,) = launches(windows, image(FP16, 3))
    cases = {
        "forward, fp16": (training["half"][0], tile["half"]),
        "gradient of x, bf16": (training["bf16"][1], tile["half"]),
        "gradient of w, fp16": (training["half"][2], tile["half"]),
        "forward, tf32": (training["tf32"][0], tile["tf32"]),
        "forward, fp32": (training["ieee"][0], tile["ieee"]),
        "depthwise, fp16": (depthwise, BANDS[0]),
        "im2col": (im2col, None),
        "winograd filters": (winograd[0], None),
        "winograd input": (winograd[1], None),
        "winograd output": (winograd[3], None),
    }
    builds = {(case, target): build_of(cases[case][0], target, cases[case][1]) for case in cases for target in TARGETS}
    builds["winograd filters, too many", "sm_80"] = build_of(winograd[0], "sm_80", ({"BT": 32}, 4, 2))
    builds["im2col, three channels", "sm_80"] = build_of(narrow, "sm_80")
    return dict(zip(builds, compile_ahead(builds.values()), strict=True))


HALF = ("forward, fp16", "gradient of x, bf16", "gradient of w, fp16")
MEMORY_BOUND = ("im2col", "winograd filters", "winograd input", "winograd output")


@pytest.mark.labs  # compiles every kernel
def test_no_kernel_spills_and_every_one_fits(reports):
    faulty = [key for key, report in reports.items() if report.spills or not report.fits]
    assert faulty == [("winograd filters, too many", "sm_80")]


@pytest.mark.labs  # compiles every kernel
@pytest.mark.parametrize(("target", "name"), [("sm_80", "HMMA"), ("sm_90", "HGMMA"), ("gfx942", "v_mfma")])
def test_products_use_the_matrix_instructions_of_each_card(reports, target, name):
    for case in (*HALF, "forward, tf32", "depthwise, fp16"):
        assert reports[case, target].count(name) > 0, case


@pytest.mark.labs  # compiles every kernel
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_float32_is_not_rounded_to_tf32_unless_asked(reports, target):
    assert reports["forward, fp32", target].matrix == 0
    assert reports["forward, fp32", target].count("FFMA") > 0


@pytest.mark.labs  # compiles every kernel
@pytest.mark.parametrize("target", TARGETS)
def test_operands_come_by_16_bytes(reports, target):
    for case in (*HALF, "forward, tf32"):
        assert set(reports[case, target].loads) == {16}, case
    assert set(reports["depthwise, fp16", target].loads) == {2, 16}  # a band is gathered by elements, an image is not


@pytest.mark.labs  # compiles every kernel
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_bound_by_memory_move_many_bytes_each_way(reports, target):
    for case in MEMORY_BOUND:
        width = 8 if case.startswith("winograd") and target == "gfx942" else 16  # 256 threads share a block of 512
        assert set(reports[case, target].loads) == set(reports[case, target].stores) == {width}, case


@pytest.mark.labs  # compiles every kernel
def test_spills_and_narrow_loads_are_seen(reports):
    """The instrument works: a tile that is too large spills, and three channels cannot come by 16 bytes."""
    assert reports["winograd filters, too many", "sm_80"].spills > 0
    assert 16 not in reports["im2col, three channels", "sm_80"].loads


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("LDG.E.128.CONSTANT", 16), ("LDGSTS.E.BYPASS.LTC128B.128", 16), ("LDGSTS.E.LTC128B", 4), ("LDG.E.U16", 2),
        ("LDG.E.64", 8), ("LDG.E", 4), ("global_load_dwordx4", 16), ("buffer_load_dwordx2", 8),
        ("global_load_lds_dwordx4", 16), ("global_load_ushort", 2), ("buffer_load_short_d16_hi", 2),
    ],
)  # fmt: skip
def test_widths_of_loads_are_read_from_their_names(name, width):
    report = CompileReport(Build("m:k", {}, {}, "sm_90"), 0, 0, 0, Counter({name: 3}), "")
    assert report.loads == {width: 3}


@pytest.mark.parametrize(("target", "per_element"), [("sm_90", 0.5), ("gfx942", 1.0)])
def test_instructions_are_counted_for_each_element(target, per_element):
    """4 warps of 32 or 64 threads that each execute 8 instructions, for 2,048 elements."""
    report = CompileReport(Build("m:k", {}, {}, target), 0, 0, 0, Counter({"FFMA": 6, "FADD.FTZ": 2}), "")
    assert report.per_element(2048) == per_element
    assert (report.count("FADD"), report.count("FF")) == (2, 6)


def test_an_unknown_target_is_refused():
    with pytest.raises(ValueError, match=r"target 'sm_10' is unknown; it is one of sm_80"):
        compile_ahead([Build("x:y", {}, {}, "sm_10")])


@pytest.mark.labs  # compiles
def test_a_kernel_that_does_not_compile_says_why(launches):
    (im2col,) = launches(windows, image(FP16))
    with pytest.raises(RuntimeError, match="power of 2"):
        compile_ahead([build_of(im2col, "sm_80", ({"BM": 100}, 4, 2))])


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["half", "tf32", "ieee"])
def test_no_tile_that_the_autotuner_tries_spills(training, kind, target):
    from hpcdl.kernels.gpu.tiles import PRODUCTS

    builds = [build_of(launch, target, tile) for tile in PRODUCTS[kind] for launch in training[kind]]
    most = 2 if target == "sm_80" else 0  # the largest tile of half precision misses two registers on an A100
    assert [report.build for report in compile_ahead(builds) if report.spills > most and report.fits] == []
