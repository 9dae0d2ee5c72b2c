import torch

from hpcdl.nn.lenet import lenet5


def test_lenet_has_the_weights_its_docstring_states_and_the_shapes_fit():
    network = lenet5()
    assert sum(p.numel() for p in network.parameters()) == 61_706
    assert network(torch.zeros(3, 1, 28, 28)).shape == (3, 10)
    assert lenet5(channels=3, classes=4)(torch.zeros(2, 3, 28, 28)).shape == (2, 4)
