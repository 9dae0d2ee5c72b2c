"""The options of a run: as TOML and back, and one sentence for each that cannot be used."""

import random
import re

import pytest

from hpcdl.training.hybrid.configuration import (
    SIZES,
    TOKENS,
    Configuration,
    ConfigurationError,
    from_options,
    merged,
    parse_mesh,
    read_options,
    read_text,
)
from hpcdl.training.hybrid.fitting import meshes, misfit, nearest, require_fit
from hpcdl.training.hybrid.models import MODELS, build


@pytest.mark.parametrize("seed", range(20))
def test_a_configuration_is_its_own_toml(seed):
    rng = random.Random(seed)
    model = rng.choice(list(SIZES))
    configuration = Configuration(
        model=model,
        size=rng.choice(SIZES[model]),
        mesh=tuple(rng.randint(1, 9) for _ in range(4)),
        optimizer=rng.choice(["sgd", "adam", "adamw"]),
        lr=rng.uniform(1e-9, 10),
        batch=rng.randint(1, 99),
        seed=rng.randint(-(2**70), 2**70),
    )
    assert from_options(read_text(configuration.to_toml(), "it")) == configuration


def test_a_mesh_may_be_a_table_of_toml():
    options = read_text("[mesh]\ndata = 2\ntensor = 3\n", "it")
    assert from_options(options).mesh == (2, 1, 3, 1)


def test_axes_that_a_mesh_leaves_out_are_one():
    assert parse_mesh(" tensor = 3, data=2") == (2, 1, 3, 1)
    assert parse_mesh("") == (1, 1, 1, 1)


@pytest.mark.parametrize("text", ["data", "data=", "data=-1", "data=2,data=2", "rows=2", "data=1e3", "data=٢", "=2"])
def test_a_mesh_that_is_none_is_a_sentence(text):
    with pytest.raises(ConfigurationError, match="it is a list of sizes, each axis once, such as data=2"):
        parse_mesh(text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "bert"}, "model is 'bert'; it is one of mlp, lenet, gpt"),
        ({"model": "mlp", "size": "large"}, "size is 'large'; mlp has tiny, small, medium"),
        ({"steps": "3"}, "steps is '3'; it is a whole number"),
        ({"steps": True}, "steps is True; it is a whole number"),
        ({"steps": -1}, "steps is -1; it is 0 or more"),
        ({"batch": 0}, "batch is 0; it is 1 or more"),
        ({"lr": float("nan")}, "lr is nan; a learning rate is above 0"),
        ({"sharding": 4}, "sharding is 4; ZeRO's stages are 1 to 3"),
        ({"mesh": "data=0"}, "each axis has 1 rank or more"),
        ({"speed": 3}, "there is no option 'speed'; the options are model, size, mesh"),
        ({"schedule": "2f2b"}, "schedule is '2f2b'; it is one of gpipe"),
        ({"tokens_per_step": 500}, "not a multiple of the 16 tokens of a text; the nearest is 496"),
        ({"tokens_per_step": 504}, "of a text; the nearest is 512"),
        ({"tokens_per_step": 1}, "of a text; the nearest is 16"),
        ({"tokens_per_step": -16}, "tokens_per_step is -16; it is 0 or more"),
        ({"model": "mlp", "tokens_per_step": 512}, "mlp reads images without tokens; give batch"),
        ({"batch": 32, "tokens_per_step": 512}, "tokens_per_step determines batch, and both are given"),
        ({"microbatches": 2, "microbatch_size": 2}, "microbatch_size determines microbatches, and both are given"),
    ],
)
def test_an_option_out_of_range_is_a_sentence(options, said):
    with pytest.raises(ConfigurationError) as raised:
        from_options(options)
    assert said in str(raised.value)


@pytest.mark.parametrize("content", [b"mesh = [", b"\xff\xfe", b"model gpt"])
def test_a_file_that_is_no_toml_is_a_sentence(content, tmp_path):
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(ConfigurationError, match="configuration"):
        read_options(tmp_path / "run.toml")


def test_what_a_number_determines_follows_the_mesh():
    configuration = Configuration(size="small", tokens_per_step=1024, microbatch_size=2)
    assert (configuration.batch, configuration.microbatches) == (16, 8)
    assert configuration.changed(mesh=(4, 1, 1, 1)).microbatches == 2
    assert configuration.changed(tokens_per_step=2048).batch == 32
    assert configuration.changed(batch=4).batch == 4
    assert configuration.changed(microbatches=1).microbatches == 1
    text = configuration.to_toml()
    assert not re.search("^(batch|microbatches) =", text, re.MULTILINE)
    assert from_options(read_text(text, "it")) == configuration


def test_later_options_replace_those_that_determine_them():
    file = {"tokens_per_step": 512, "microbatch_size": 4, "seed": 3}
    assert merged(file, {"batch": 8}) == {"microbatch_size": 4, "seed": 3, "batch": 8}
    assert merged({"batch": 8}, {"tokens_per_step": 64}) == {"tokens_per_step": 64}


def test_another_optimizer_brings_its_own_rate():
    start = Configuration(optimizer="adamw")
    assert from_options({"optimizer": "sgd"}, start).lr == 0.05
    assert from_options({"optimizer": "sgd"}, start.changed(lr=0.3)).lr == 0.3


def test_the_sizes_are_those_of_the_models():
    assert {model: tuple(sizes) for model, sizes in MODELS.items()} == SIZES
    assert {size: build("gpt", size).sequence for size in SIZES["gpt"]} == TOKENS


@pytest.mark.parametrize(
    ("options", "ranks", "said"),
    [
        (
            {"mesh": (3, 1, 1, 1)},
            4,
            "has 3 ranks, and there are 4: start 3, by mpiexec -n 3, torchrun or --simulate 3; the nearest mesh "
            "that fits is data=4,pipeline=1",
        ),
        ({"model": "lenet", "mesh": (1, 8, 1, 1)}, 8, "cuts 8 parts out of 5 layers; the nearest mesh that fits is"),
        ({"model": "lenet", "mesh": (1, 1, 1, 2)}, 2, "which has no sequence of tokens; the nearest"),
        ({"mesh": (1, 1, 16, 1)}, 16, "tensor=16 is too much for gpt, which has 8 heads of attention; the nearest"),
        ({"mesh": (4, 1, 1, 1), "batch": 7, "microbatches": 2}, 4, "needs 8 samples a step or more, and batch is 7"),
        ({"model": "lenet", "mesh": (1, 1, 1, 13), "batch": 1}, 13, "no mesh of so many ranks fits"),
        (
            {"mesh": (2, 1, 1, 1), "batch": 12, "microbatch_size": 4},
            2,
            "does not divide the 6 samples of each replica, batch 12 over data=2; the nearest that does is 3; the "
            "nearest mesh that fits is data=1,pipeline=2",
        ),
        (
            {"mesh": (3, 1, 1, 1), "tokens_per_step": 512, "microbatch_size": 4},
            3,
            "tokens_per_step=512 does not divide into microbatches of microbatch_size=4 on data=3; the nearest that "
            "does is 576; the nearest mesh",
        ),
        ({"mesh": (3, 1, 1, 1), "batch": 32, "microbatch_size": 4}, 3, "batch=32 does not divide"),
    ],
)
def test_a_mesh_that_does_not_fit_is_a_sentence(options, ranks, said):
    configuration = Configuration(**options)
    with pytest.raises(ConfigurationError) as raised:
        require_fit(configuration, build(configuration.model), ranks)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("seed", range(10))
def test_the_nearest_mesh_fits_and_has_the_ranks(seed):
    rng = random.Random(seed)
    ranks, configuration = rng.randint(1, 12), Configuration(model=rng.choice(list(MODELS)))
    model = build(configuration.model)
    configuration = configuration.changed(mesh=tuple(rng.randint(1, 9) for _ in range(4)))
    found = nearest(configuration, model, ranks)
    assert found is not None
    assert not misfit(configuration.changed(mesh=found), model, ranks)
    if not misfit(configuration, model, ranks):
        assert found == configuration.mesh


def test_all_meshes_of_some_ranks_are_tried_once():
    found = list(meshes(12))
    assert len(found) == len(set(found)) == 40  # 2^2 in four axes in 10 ways, 3 in 4
