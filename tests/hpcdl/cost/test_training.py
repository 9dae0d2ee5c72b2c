"""An iteration and its parts, utilization, and the time to the end."""

import math
import random
import time

import pytest

from hpcdl.cost import collectives, work
from hpcdl.cost.kernels import product_seconds
from hpcdl.cost.machines import A100_SUPERPOD, GAP, P100, V100_DGX1
from hpcdl.cost.pipeline import play
from hpcdl.cost.scaling import single, slowest
from hpcdl.cost.topology import Link, Nodes, ParameterServers
from hpcdl.cost.training import ADAM_BYTES, Layout, predict, time_to_train, train_seconds, utilization
from hpcdl.cost.work import Transformer
from hpcdl.nn.networks import Layer, resnet50, total, vgg16
from hpcdl.parallel.schedules import SCHEDULES

FAST, SLOW = Link(1e-6, 1e-11), Link(1e-5, 1e-9)
MACHINE = P100._replace(network=Nodes(8, FAST, SLOW))
GPT = Transformer(layers=8, hidden=1024, sequence=512, vocabulary=5000, heads=16)


def on(p, layers, measured, machine=MACHINE, **options):
    buckets = {"buckets": options.pop("buckets")} if "buckets" in options else {}
    layout = Layout(data=p, itemsize=options.pop("itemsize", 4), **buckets)
    return predict(layers, machine, layout, 32 * p, measured=measured, **options)


def test_an_iteration_over_2048_gpus_is_computed_in_a_tenth_of_a_second():
    times = []
    for _ in range(3):
        begin = time.process_time()
        on(2048, resnet50(), (0.06, 0.12), spread=0.02)
        times.append(time.process_time() - begin)
    assert min(times) < 0.1


def test_efficiency_depends_on_ranks_and_network():
    def efficiency(p, between=SLOW):
        machine = P100._replace(network=Nodes(8, FAST, between))
        return on(1, vgg16(), (0.1, 0.2), machine).seconds / on(p, vgg16(), (0.1, 0.2), machine).seconds

    ranks = [8, 64, 512, 4096]
    falling = [efficiency(p) for p in ranks]
    assert falling == sorted(falling, reverse=True)
    assert all(0 < each <= 1 for each in falling)
    assert all(efficiency(p, Link(SLOW.alpha, SLOW.beta / 4)) > efficiency(p) for p in ranks[1:])


def test_half_the_bytes_cost_half_the_exposed_time_where_bandwidth_rules():
    machine = P100._replace(network=Nodes(1, FAST, Link(0.0, 1e-9)))
    exposed = [on(64, vgg16(), (0.0, 1e-9), machine, itemsize=itemsize, buckets=single).exposed for itemsize in (4, 2)]
    assert exposed[0] == pytest.approx(2 * exposed[1], rel=1e-6)


def test_one_rank_alone_computes_at_its_roof():
    """A linear layer takes its roof, and the activation after it moves its output three and five times."""
    layers = [Layer("linear", 4096 * 1024, 4096 * 1024, 4096, 1024)]
    machine = P100.reaching()._replace(processors=1)
    device, moved = machine.device(), 4 * 512 * 1024 / P100.bandwidth
    iteration = predict(layers, machine, Layout(), 512)
    assert iteration.forward == pytest.approx(work.forward_seconds(layers, 512, device) + 3 * moved + 2 * GAP)
    assert iteration.backward == pytest.approx(work.backward_seconds(layers, 512, device) + 5 * moved + 3 * GAP)
    assert iteration.seconds == iteration.compute


def test_stragglers_input_and_update_have_their_own_seconds():
    plain = on(8, resnet50(), (0.06, 0.12))
    late = on(8, resnet50(), (0.06, 0.12), spread=0.1)
    assert late.compute == plain.compute == pytest.approx(0.18)
    assert late.stragglers == pytest.approx(0.18 * (slowest(8, 0.1) - 1))
    starved = on(8, resnet50(), (0.06, 0.12), input_rate=100)
    assert starved.seconds == pytest.approx(8 * 32 / 100)
    assert starved.waiting == pytest.approx(2.56 - plain.seconds)
    updated = predict(resnet50(), P100, Layout(update_bytes=20), 32, measured=(0.06, 0.12))
    assert updated.optimizer == pytest.approx(20 * total(resnet50(), "weights") / P100.usual().bandwidth)


def test_cutting_layers_divides_the_products_and_adds_messages():
    alone, cut = (predict(GPT, V100_DGX1, Layout(tensor=t, precision="fp16", itemsize=2), 4) for t in (1, 4))
    assert alone.compute / 4 < cut.compute < alone.compute / 2, "normalizations are repeated, and products are smaller"
    each = V100_DGX1.usual().network.all_reduce(4)(4 * 512 * 1024 * 2)
    assert alone.exposed == 0
    assert cut.exposed == pytest.approx(8 * 4 * each)  # two each way in each of eight layers
    full = predict(GPT, V100_DGX1, Layout(tensor=4, precision="fp16", itemsize=2, recompute="full"), 4)
    assert full.exposed == pytest.approx(8 * 6 * each)
    assert full.compute - cut.compute == pytest.approx(cut.forward, rel=0.15)


def test_what_every_rank_repeats_is_divided_only_along_the_sequence():
    machine = V100_DGX1._replace(peaks={"fp16": 1e30}).reaching()
    whole, cut = (
        predict(GPT, machine, Layout(tensor=4, sequence_parallel=cut, precision="fp16", itemsize=2), 64).compute
        for cut in (False, True)
    )
    # 4 + 6 + 1 elements of each token forward and 6 + 6 + 5 backward; the last normalization reads and writes.
    repeated = (8 * (11 + 17) + 12 + 4) * 64 * 512 * 1024 * 2 / 900e9
    assert whole - cut == pytest.approx(3 / 4 * repeated, rel=0.02)


@pytest.mark.parametrize(("schedule", "chunks"), [("one_f_one_b", 1), ("interleaved", 2), ("zb_h1", 1), ("zb_v", 2)])
@pytest.mark.parametrize("recompute", ["nothing", "full"])
@pytest.mark.parametrize("m", [2, 16])
def test_a_pipeline_has_the_bubble_of_its_schedule(schedule, chunks, recompute, m):
    options = {"microbatch": 1, "precision": "fp16", "itemsize": 2, "recompute": recompute}
    machine = A100_SUPERPOD._replace(network=Nodes(8, Link(0, 0), Link(0, 0)))
    alone = predict(GPT, machine, Layout(**options), m)
    cut = predict(GPT, machine, Layout(pipeline=4, schedule=schedule, chunks=chunks, balanced=True, **options), m)
    assert cut.compute == pytest.approx(alone.compute / 4)
    f, b = (seconds / 4 / m for seconds in (alone.forward, alone.backward / 2))
    chosen = SCHEDULES[schedule]
    timeline = play(chosen.orders(4, m), f / chunks, b / chunks, b / chunks, parts=chosen.parts(4, chunks))
    assert cut.bubble == pytest.approx(timeline.seconds - cut.compute)


def test_the_last_stage_waits_for_nobody():
    """Equal layers leave the output to the last stage, which all others wait for."""
    options = {"pipeline": 4, "microbatch": 1, "precision": "fp16", "itemsize": 2}
    equal, balanced = (predict(GPT, A100_SUPERPOD, Layout(**options, balanced=even), 16) for even in (False, True))
    assert equal.compute == balanced.compute
    assert equal.bubble > balanced.bubble


def test_some_size_of_microbatches_is_best():
    """Small ones fill the pipeline and compute slowly."""

    def seconds(size, half):
        return predict(GPT, MACHINE, Layout(pipeline=4, microbatch=size), 64, half=half).seconds

    sizes = (1, 2, 4, 8, 16, 32, 64)
    assert min(sizes, key=lambda size: seconds(size, 0)) <= 2, "without a price the smallest leave the least bubble"
    assert min(sizes, key=lambda size: seconds(size, 4)) in (4, 8, 16)
    alone, slow = (predict(GPT, P100, Layout(), 8, half=half) for half in (0, 8))
    assert slow.forward == pytest.approx(2 * alone.forward, rel=0.01)
    assert slow.backward == pytest.approx(2 * alone.backward, rel=0.01)


def test_a_pipelines_prediction_is_what_its_played_schedule_takes():
    machine = A100_SUPERPOD._replace(network=Nodes(8, Link(0, 0), Link(0, 0)))
    predicted = predict(GPT, machine, Layout(pipeline=4, microbatch=2), 32, measured=(0.4, 0.8))
    played = play(SCHEDULES["one_f_one_b"].orders(4, 16), 0.1, 0.2)
    assert predicted.seconds == pytest.approx(played.seconds)


def test_data_tensor_and_pipeline_divide_what_is_summed():
    layout = Layout(4, 8, 2, microbatch=1, precision="fp16", itemsize=2, overlap=False, buckets=single)
    iteration = predict(GPT, A100_SUPERPOD, layout, 32)
    without = predict(GPT, A100_SUPERPOD, layout._replace(data=1), 8)
    gradients = sum(-(-2 * layer.weights // 16) for layer in GPT.table())
    network = A100_SUPERPOD.usual().network
    summed = collectives.ring(4, gradients, network.between.alpha, 8 * network.between.beta, itemsize=1)
    assert iteration.exposed - without.exposed == pytest.approx(summed)
    assert layout.ranks == 64


def test_a_published_run_is_one_call():
    iteration = predict(
        Transformer(layers=96, hidden=12288, sequence=2048, vocabulary=51200, heads=96),
        A100_SUPERPOD,
        Layout(tensor=8, pipeline=8, chunks=3, schedule="interleaved", microbatch=1, recompute="selective",
               sequence_parallel=True, precision="fp16", itemsize=2, update_bytes=ADAM_BYTES),
        batch=64,
    )  # fmt: skip
    assert iteration.seconds == pytest.approx(13.75, rel=0.1)  # Korthikanti et al. 2022, table 5
    assert iteration.low < 13.75 < iteration.high
    assert str(iteration).startswith(f"{iteration.seconds:.3g} s (")


def test_utilizations_are_the_published_ones():
    model = Transformer(96, 12288, 2048, 51200, 96)
    found = utilization(model, 64, 13.75, 64, 312e12, "selective")
    assert 100 * found.model == pytest.approx(51.39, abs=0.005)
    trillion = Transformer(128, 25600, 2048, 51200, 160)
    assert 100 * utilization(trillion, 512, 71.49, 512, 312e12).model == pytest.approx(56.27, abs=0.005)
    assert found.hardware > found.model
    images = utilization(resnet50(), 256, 1.0, 1, 1e12)
    assert images.model == images.hardware == pytest.approx(256 * 11.7e9 * 2 / 1e12, rel=0.05)  # the lecture's 11.7 G


def test_the_lectures_v100_needs_6_7_hours_at_its_peak_and_22_as_measured():
    flops = 2 * 11.7e9 * 1.28e6 * 90
    assert time_to_train(2 * 11.7e9 * 256 / 112e12, 256, 1.28e6, 90) == pytest.approx(flops / 112e12)
    assert flops / 112e12 / 3600 == pytest.approx(6.7, abs=0.05)
    assert time_to_train(256 / 1457, 256, 1.28e6, epochs=90) / 3600 == pytest.approx(22, abs=0.1)
    assert time_to_train(1.0, 10, 100, epochs=2, evaluation=5) == 2 * (10 + 5)


def test_a_gpt_of_175_b_takes_34_days():
    assert round(train_seconds(175e9, 300e9, 1024, 140e12, recompute="full") / 86400) == 34
    assert train_seconds(1, 6, 1, 1) == 36
    with pytest.raises(ValueError, match="recompute is 'selective'; the rule knows nothing and full"):
        train_seconds(1, 1, 1, 1, recompute="selective")


SERVERLESS = P100._replace(network=ParameterServers(0, SLOW))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"layout": Layout(data=3)}, ValueError, "batch is 32; 3 data-parallel groups with microbatches of 10"),
        ({"layout": Layout(data=64)}, ValueError, "batch is 32; 64 data-parallel groups"),
        ({"layout": Layout(tensor=2)}, TypeError, "tensor is 2; only a Transformer's layers are cut: leave it at 1"),
        (
            {"layout": Layout(zero=3, data=2)},
            TypeError,
            "zero is 3; only a Transformer's layers are cut: leave it at 2",
        ),
        ({"layout": Layout(attention="flsh")}, ValueError, "attention is 'flsh'; it is one of scores, flash"),
        ({"layout": Layout(zero=4)}, ValueError, "zero is 4; it is one of 0, 1, 2, 3"),
        ({"layout": Layout(data=4, experts=3)}, ValueError, "experts is 3; it divides data x context, which is 4"),
        ({"layout": Layout(precision="fp8")}, ValueError, "precision is 'fp8'; P100 has peaks for fp32"),
        ({"layout": Layout(schedule="gpip")}, ValueError, "schedule is 'gpip'; the schedules are gpipe, one_f_one_b"),
        ({"model": 7}, TypeError, "the model is 7; it is a list of"),
        ({"machine": "P100"}, TypeError, "machine is 'P100'; it is a Machine, such as hpcdl.cost.machines.P100"),
        ({"layout": {"data": 8}}, TypeError, "layout is {'data': 8}; it is a Layout, such as"),
        ({"layout": Layout(microbatch=-1)}, ValueError, "microbatch is -1; it is a whole number from 1"),
        ({"layout": Layout(offload=-1e9)}, ValueError, "offload is -1000000000.0; it is a number above 0"),
        ({"layout": Layout(buckets="fused")}, ValueError, "buckets is 'fused'; it is a function of hpcdl.cost.scaling"),
        ({"layout": Layout(pipeline=64)}, ValueError, "pipeline is 64; the model has 54 layers: use no more ranks"),
        ({"batch": -1}, ValueError, "batch is -1; it is a whole number from 1"),
        ({"batch": 1.5}, ValueError, "batch is 1.5; it is a whole number from 1"),
        ({"spread": -1.0}, ValueError, "spread is -1.0; it is a number from 0"),
        ({"spread": math.nan}, ValueError, "spread is nan; it is a number from 0"),
        ({"half": -9}, ValueError, "half is -9; it is a number from 0"),
        ({"input_rate": 0}, ValueError, "input_rate is 0; samples per second that can be read are more than 0"),
        ({"measured": (-1, 1)}, ValueError, "measured forward is -1; it is a number from 0"),
        ({"measured": (0, 0)}, ValueError, "measured in all is 0; it is a number above 0"),
        ({"measured": (1,)}, ValueError, r"measured is \(1,\); it is seconds forward and seconds backward"),
        ({"model": GPT._replace(layers=0)}, ValueError, "layers is 0; it is a whole number from 1"),
        ({"model": GPT._replace(heads=3)}, ValueError, "heads is 3; it divides hidden, which is 1024"),
        ({"model": GPT._replace(active=2)}, ValueError, "active is 2; a token uses some of the experts, which are 1"),
        ({"model": GPT, "layout": Layout(tensor=32)}, ValueError, "tensor is 32; the model has 16 heads: use no more"),
        ({"machine": SERVERLESS, "layout": Layout(data=8)}, ValueError, "servers is 0; there is one server or more"),
    ],
)
def test_what_does_not_fit_is_said(options, error, said):
    arguments = {"model": resnet50(), "machine": P100, "layout": Layout(), "batch": 32} | options
    with pytest.raises(error, match=said):
        predict(**arguments)


def test_data_parallel_transformer_is_like_any_network():
    assert predict(GPT, MACHINE, Layout(data=16), 64).exposed > 0


CHUNKS = {name: 2 if name in ("interleaved", "zb_v") else 1 for name in SCHEDULES if name != "gpipe"}
LAYOUTS = [
    Layout(
        1024 // t // p, t, p, microbatch=size, chunks=chunks, schedule=schedule, zero=zero, recompute=recompute,
        sequence_parallel=cut, precision="fp16", itemsize=2, attention=attention,
    )
    for t in (1, 2, 4, 8) for p in (1, 2, 4, 8, 16) for size in (1, 2, 4) for schedule, chunks in CHUNKS.items()
    for zero in range(4) for recompute in work.RECOMPUTE for cut in (False, True) for attention in ("scores", "flash")
]  # fmt: skip
LARGE = Transformer(96, 12288, 2048, 51200, 96)


def test_a_search_times_each_product_once():
    """Layouts share their kernels, so that thousands of layouts cost some hundred products."""
    product_seconds.cache_clear()
    for layout in LAYOUTS[::40]:
        predict(LARGE, A100_SUPERPOD, layout, 4096)
    assert product_seconds.cache_info().misses < 1000


@pytest.mark.labs  # ten thousand predictions take seconds
def test_ten_thousand_layouts_are_searched():
    """The processor's own seconds: about two are needed."""
    begin = time.process_time()
    tried = random.Random(0).sample(LAYOUTS, 10_000)
    best = min(tried, key=lambda layout: predict(LARGE, A100_SUPERPOD, layout, 4096).seconds)
    assert time.process_time() - begin < 10
    assert best.ranks == 1024
