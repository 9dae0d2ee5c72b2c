"""DeepSpeed and Ray: whether they are installed, and how to install them. No lab needs either."""

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple


class Package(NamedTuple):
    """A package: its requirement for pip (as in pyproject.toml, extra `frameworks`), a prefix of the command, and a
    remark."""

    module: str
    requirement: str
    before: str
    remark: str


PACKAGES = {
    "DeepSpeed": Package("deepspeed", "deepspeed>=0.19", "DS_BUILD_OPS=0 ", "its parts in C++ are built at first use"),
    "Ray": Package("ray", "ray[train]>=2.50", "", "0.6 GB"),
}


def found(name: str) -> str | None:
    """Return the installed version of a package in `PACKAGES`, or None."""
    module = PACKAGES[name].module
    if importlib.util.find_spec(module) is None:
        return None
    try:
        return version(module)
    except PackageNotFoundError:  # only a folder with that name
        return None


def advice(name: str, pip: str = "pip install") -> str:
    """Return the command that installs a package in `PACKAGES`, and a remark about it."""
    package = PACKAGES[name]
    return f"{package.before}{pip} '{package.requirement}'  ({package.remark})"
