"""Cells that were copied, moved, broken, or do something else on the way. Honest work keeps its points."""

from . import COUNT, MEAN, cells

BLANK = "def mean(x):\n    raise NotImplementedError\n"
LOOP = "while True:\n    pass\n"

ATTACKS = {
    "check cells deleted": cells(MEAN, COUNT),
    "check replaced by one's own": cells("def check(name):\n    print('100 / 100')", "check('arena.mean')", score=0),
    "the exercise copied, the blank one last": cells(MEAN, COUNT, BLANK),
    "the exercise twice, the last one wrong": cells(
        MEAN, COUNT, "def mean(x):\n    return x[0]", score=40, says="2 times"
    ),
    "a syntax error in one cell": cells("def mean(x:\n    return", COUNT, score=40, says="does not compile"),
    "a syntax error in another cell": cells("print 'hello'", MEAN, COUNT, says="does not compile"),
    "out of order": cells("def mean(x):\n    return total(x) / x.numel()", COUNT, "def total(x):\n    return x.sum()"),
    "renamed": cells(MEAN.replace("mean", "maen"), COUNT, score=40, says="found `maen`: rename it?"),
    "another signature": cells("def mean():\n    return 1", COUNT, score=40, says="does not take the arguments"),
    "turned into Markdown": cells(
        {"cell_type": "markdown", "metadata": {}, "source": MEAN}, COUNT, score=40, says="is a Markdown cell"
    ),
    "not a function": cells("mean = 3", COUNT, score=40, says="not a function"),
    "magics and shell": cells(
        "%matplotlib inline\n!rm -rf /nonexistent-hpcdl\n%%timeit", "%time x = 1\n" + MEAN, COUNT
    ),
    "in a %%px cell": cells("%%px --local\n" + MEAN, COUNT),
    "another language's cell": cells("%%bash\nexit 1", MEAN, COUNT),
    "input()": cells("name = input()\n", MEAN, COUNT),
    "input() in the answer": cells("def mean(x):\n    return float(input())", COUNT, score=40, says="no one answers"),
    "await at top level": cells("import asyncio\nawait asyncio.sleep(100)", MEAN, COUNT),
    "a training loop of ten minutes": cells("import time\ntime.sleep(600)", MEAN, COUNT),
    "a loop in a cell that nothing needs": cells(LOOP, MEAN, COUNT),
    "a plot and a widget": cells("import ipywidgets\nipywidgets.IntSlider()", "plt.show()", MEAN, COUNT),
    "a download": cells("import urllib.request as u\ndata = u.urlopen('http://127.0.0.1:9')", MEAN, COUNT),
    "a loop where the answer's constant is made": cells(
        "import time\nscale = time.sleep(600)", "def mean(x):\n    return scale", COUNT, score=40
    ),
    "a helper that ends the process": cells(
        "import os\nscale = os._exit(0)", "def mean(x):\n    return scale", COUNT, score=40
    ),
}
