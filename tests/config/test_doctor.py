"""The doctor: every finding is a line, a failure has a fix and decides the exit code."""

import importlib.metadata
import re
import sys
import types

import pytest
import torch

from cluster.cli import doctor
from cluster.cli.doctor import CHECKS, Finding, examine
from learner.optim import gpu
from llm_service.durable import redis_server


def test_this_machine_is_ready(tmp_path, capsys):
    """The tests run on it, so nothing may fail here."""
    assert examine(tmp_path / "runs") == 0
    printed = capsys.readouterr().out
    for title in CHECKS:
        assert title in printed
    assert not (tmp_path / "runs").exists()


def test_a_missing_package_fails_with_the_command_that_installs_it(monkeypatch, tmp_path):
    def version(name):
        if name == "ray":
            raise importlib.metadata.PackageNotFoundError(name)
        return "0.0.1" if name == "numpy" else importlib.metadata.version(name)

    monkeypatch.setattr(doctor, "version", version)
    finding = CHECKS["packages"](tmp_path)
    assert (finding.state, finding.text) == ("fail", "missing: ray")
    assert re.search(r"-m pip install -r .*requirements\.txt$", finding.fix)


def test_another_version_is_a_warning(monkeypatch, tmp_path):
    pinned = importlib.metadata.version
    monkeypatch.setattr(doctor, "version", lambda name: "0.0.1" if name == "numpy" else pinned(name))
    finding = CHECKS["packages"](tmp_path)
    assert finding.state == "warn"
    assert finding.text.startswith("numpy 0.0.1 (tested with ")


def test_a_runs_folder_that_cannot_be_made_is_found(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    finding = CHECKS["runs folder"](tmp_path / "a" / "b")
    assert finding == Finding(
        "fail", f"{tmp_path}: Permission denied", "choose another run.folder, or correct its permissions"
    )


def test_a_check_that_breaks_is_a_finding_too(tmp_path, monkeypatch, capsys):
    def broken(runs):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(doctor, "CHECKS", {"thing": broken})
    assert examine(tmp_path) == 1
    assert "RuntimeError: no such thing" in capsys.readouterr().out


@pytest.mark.parametrize("title", CHECKS)
def test_a_finding_that_is_not_ok_says_its_fix(title, tmp_path):
    finding = CHECKS[title](tmp_path)
    assert finding.text
    assert finding.state == "ok" or finding.fix


def test_redis_says_which_one_would_be_used(tmp_path, monkeypatch):
    binary = tmp_path / "redis-server"
    binary.write_text("#!/bin/sh\necho 'Redis server v=7.4.6 sha=0 bits=64'\n")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert CHECKS["Redis"](tmp_path) == Finding("ok", f"7.4.6, {binary}")
    binary.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0 bits=64'\n")
    assert "6.2.14, " in CHECKS["Redis"](tmp_path).text
    assert "scripts can run any code in it" in CHECKS["Redis"](tmp_path).text


def test_without_a_redis_the_doctor_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(redis_server.importlib.util, "find_spec", lambda name: None)
    finding = CHECKS["Redis"](tmp_path)
    assert finding.state == "warn"
    assert "no redis-server" in finding.text
    assert finding.fix.endswith("requirements.txt")


def test_a_grpc_that_cannot_be_used_fails(tmp_path, monkeypatch):
    assert CHECKS["gRPC"](tmp_path).text.startswith(importlib.metadata.version("grpcio"))
    monkeypatch.setitem(sys.modules, "grpc", None)
    finding = CHECKS["gRPC"](tmp_path)
    assert (finding.state, finding.text.partition(":")[0]) == ("fail", "cannot be used")


def test_what_a_gpu_could_train_is_told():
    assert doctor._room(80 * 2**30) == "80 GiB train the language model flan-t5-xl, or adapters of flan-t5-xxl"
    assert doctor._room(2**30) == "1 GiB train the language model none, or adapters of flan-t5-base"


@pytest.mark.parametrize(
    ("count", "nccl", "bfloat16", "state", "says"),
    [
        (1, True, True, "ok", "driver 570.1, CUDA"),
        (2, True, True, "ok", "NCCL 2.27.3"),
        (2, False, True, "warn", "by NCCL, which this PyTorch lacks"),
        (1, False, True, "ok", "NCCL none"),
        (1, True, False, "warn", "does not compute in bfloat16"),
    ],
)
def test_driver_nccl_and_bfloat16_of_a_gpu_are_checked(count, nccl, bfloat16, state, says, tmp_path, monkeypatch):
    """PyTorch's answers about a GPU are made up here: there may be none."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda at: f"Card {at}")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda at: types.SimpleNamespace(total_memory=80 * 2**30))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bfloat16)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: nccl)
    monkeypatch.setattr(gpu, "driver", lambda: "570.1")
    finding = CHECKS["GPU"](tmp_path)
    assert finding.state == state
    assert says in finding.text
    assert finding.text.startswith("Card 0")
    assert bool(finding.fix) == (state != "ok")
