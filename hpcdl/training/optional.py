"""DeepSpeed and Ray: whether they are here, and how to get them. No lab needs either."""

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple


class Package(NamedTuple):
    """What pip is asked for (as in pyproject.toml, extra `frameworks`), in front of it, and what is to be known."""

    module: str
    requirement: str
    before: str
    remark: str


PACKAGES = {
    "DeepSpeed": Package("deepspeed", "deepspeed>=0.19", "DS_BUILD_OPS=0 ", "its parts in C++ are built at first use"),
    "Ray": Package("ray", "ray[train]>=2.50", "", "0.6 GB"),
}


def found(name: str) -> str | None:
    """The version of a package of `PACKAGES` that is installed here, None where it is not."""
    module = PACKAGES[name].module
    if importlib.util.find_spec(module) is None:
        return None
    try:
        return version(module)
    except PackageNotFoundError:  # a folder of that name
        return None


def advice(name: str, pip: str = "pip install") -> str:
    """The command that brings a package of `PACKAGES`, and what is to be known about it."""
    package = PACKAGES[name]
    return f"{package.before}{pip} '{package.requirement}'  ({package.remark})"
