"""The command line answers mistakes with a sentence and an exit code."""

import json
import subprocess
import sys

import pytest

from hpcdl import doctor


def hpcdl(*arguments, cwd=None, seconds=60):
    command = [sys.executable, "-m", "hpcdl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=cwd)


def test_help_is_quick_since_it_brings_nothing_heavy():
    """Counted, not timed: in a crowd any time is long."""
    for arguments in (["--help"], ["train", "--help"]):
        script = (
            f"import sys; sys.argv = ['hpcdl', *{arguments}]\n"
            "from hpcdl.cli import app\n"
            "try: app()\n"
            "finally: print(len(sys.modules), *sorted(sys.modules), file=sys.stderr)"
        )
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert "Usage" in run.stdout
        count, *modules = run.stderr.split()
        assert not {"torch", "numpy", "mpi4py", "IPython", "ipyparallel", "psutil", "nbformat"} & set(modules)
        assert int(count) < 700


@pytest.mark.parametrize("package", ["hpcdl", "autograder"])
def test_ctrl_c_while_modules_are_imported_is_one_sentence(package):
    script = (
        "import runpy, sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.endswith('.cli'): raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        f"runpy.run_module({package!r}, run_name='__main__')"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (130, "Interrupted before anything was done.\n")


def test_an_unknown_lab_names_the_labs_there_are():
    run = hpcdl("lab", "gradient", "--no-browser")
    assert run.returncode == 2
    assert "no lab 'gradient'" in run.stderr
    assert "02_gradient_descent" in run.stderr


def test_an_unknown_benchmark_names_those_there_are():
    run = hpcdl("bench", "speed", "--quick")
    assert run.returncode == 2
    assert "no benchmark 'speed'" in run.stderr
    assert "collectives" in run.stderr


def test_without_a_command_the_help_is_shown():
    assert "doctor" in hpcdl().stderr + hpcdl().stdout


@pytest.mark.labs  # starts engines
@pytest.mark.mpi
def test_the_doctor_examines_everything_and_starts_engines():
    run = hpcdl("doctor", "--json", seconds=120)
    findings = {finding["name"]: finding for finding in json.loads(run.stdout)}
    assert set(findings) == {name for name, _ in doctor.probes()}
    assert findings["engines"]["state"] == "ok", findings["engines"]
    assert run.returncode == 0
    assert all(finding["advice"] for finding in findings.values() if finding["state"] != "ok")


def test_a_probe_that_raises_becomes_a_finding_and_not_a_traceback():
    def broken():
        raise OSError("no such device")

    finding = doctor._run("GPU", broken)
    assert finding.state == "missing"
    assert "no such device" in finding.detail


def test_the_report_wraps_long_sentences_under_themselves(capsys):
    doctor.show([("memory", lambda: doctor.Finding("memory", "limited", "little " * 30, "close other programs"))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("! memory")
    assert all(line.startswith(" " * 16) for line in lines[1:])


def test_what_no_lab_needs_is_no_warning(capsys):
    doctor.show([("Ray", lambda: doctor.Finding("Ray", "absent", "not installed; no lab needs it", "to try it: pip"))])
    assert capsys.readouterr().out.startswith("· Ray")
