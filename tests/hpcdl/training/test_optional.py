"""DeepSpeed and Ray: a sentence where they are not, and what pip is asked for stands in pyproject.toml too."""

import tomllib
from pathlib import Path

import pytest

from hpcdl import doctor
from hpcdl.training import optional

ROOT = Path(__file__).resolve().parents[3]


def test_pip_is_asked_for_what_the_extra_has():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["frameworks"] == [each.requirement for each in optional.PACKAGES.values()]
    assert not any(each.module in line for each in optional.PACKAGES.values() for line in project["dependencies"])


@pytest.mark.parametrize(("name", "probe"), [("DeepSpeed", doctor.deepspeed), ("Ray", doctor.ray)])
@pytest.mark.parametrize("version", [None, "9.9"])
def test_the_doctor_says_whether_it_is_here_and_how_to_get_it(name, probe, version, monkeypatch):
    monkeypatch.setattr(optional, "found", lambda _: version)
    finding = probe()
    assert "no lab needs it" in finding.detail
    if version:
        assert (finding.state, finding.advice) == ("ok", "")
        assert version in finding.detail
    else:
        assert finding.state == "absent"
        assert optional.PACKAGES[name].requirement in finding.advice


def test_package_is_found_by_its_version(monkeypatch, tmp_path):
    monkeypatch.setitem(optional.PACKAGES, "torch", optional.Package("torch", "torch", "", ""))
    monkeypatch.setitem(optional.PACKAGES, "folder", optional.Package("folder_13", "folder", "", ""))
    (tmp_path / "folder_13").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert optional.found("torch")[0].isdigit()
    assert optional.found("folder") is None
