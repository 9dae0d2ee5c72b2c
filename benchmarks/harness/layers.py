"""Convolution layers of well-known networks, and two with large filters."""

from hpcdl.conv import Problem

LAYERS = {
    "AlexNet conv1": Problem(8, 3, 227, 227, 96, 11, 11, stride=4),
    "AlexNet conv2": Problem(8, 96, 27, 27, 256, 5, 5, padding=2, groups=2),
    "VGG conv1_2": Problem(2, 64, 224, 224, 64, 3, 3, padding=1),
    "VGG conv3_2": Problem(8, 256, 56, 56, 256, 3, 3, padding=1),
    "VGG conv4_2": Problem(8, 512, 28, 28, 512, 3, 3, padding=1),
    "VGG conv5_2": Problem(8, 512, 14, 14, 512, 3, 3, padding=1),
    "ResNet 64@56": Problem(8, 64, 56, 56, 64, 3, 3, padding=1),
    "ResNet 128@28": Problem(8, 128, 28, 28, 128, 3, 3, padding=1),
    "ResNet 256@14": Problem(8, 256, 14, 14, 256, 3, 3, padding=1),
    "ResNet 512@7": Problem(8, 512, 7, 7, 512, 3, 3, padding=1),
    "depthwise 31x31": Problem(8, 128, 56, 56, 128, 31, 31, padding=15, groups=128),
    "dense 13x13": Problem(8, 64, 64, 64, 64, 13, 13, padding=6),
}
