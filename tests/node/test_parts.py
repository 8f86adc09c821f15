"""The parts of `scripts/node` that need no root: names, plans, tables, images, and messages about missing programs."""

from __future__ import annotations

import ctypes
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
import yaml

from scripts.node_machine import cgroups, cloud, commands, images, network, node, program
from scripts.node_machine.clock import later, units
from scripts.node_machine.instances import Instance, default_name, started

LEGACY = """\
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,nosuid,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,xattr,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""


def test_each_checkout_has_its_own_instance() -> None:
    names = {default_name(Path(path)) for path in ("/a/edgehub", "/b/edgehub", "/b/Ede Hub_")}
    assert len(names) == 3
    assert [Instance(name).name for name in names] == list(names)


@pytest.mark.parametrize("name", ["", "../up", "a b", "-a", "a" * 42])
def test_a_name_that_is_no_valid_folder_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid instance name"):
        Instance(name)


def test_an_ended_process_is_not_confused_with_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    instance = Instance("one")
    (instance.folder / "edge-1").mkdir(parents=True)
    instance.remember("edge-1", os.getpid())
    assert (instance.machines, instance.nodes, instance.pid("edge-1")) == (
        ["edge-1"],
        ["edge-1"],
        os.getpid(),
    )
    (instance.folder / "edge-1/machine.json").write_text(json.dumps({"pid": os.getpid(), "started": "1"}))
    assert instance.pid("edge-1") is None
    assert not instance.is_up
    assert started(2**22 + 1) == ""


def test_cgroup_v1_hierarchies_are_preferred() -> None:
    found = cgroups.hierarchies(LEGACY)
    assert [each.controllers for each in found] == ["cpu,cpuacct", "name=systemd"]
    (unified,) = cgroups.hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n")
    assert (unified.kind, unified.controllers) == ("cgroup2", "")


def test_the_firewall_table_that_cuts_a_node_off_names_it_and_its_pods() -> None:
    hole = network.rules("edge-2", network.Cut.HOLE)
    assert hole.count("{ 10.77.0.12, 10.244.2.0/24 } drop") == 2
    assert "reject" not in hole
    assert network.rules("edge-2", network.Cut.REFUSE).count("reject with tcp reset") == 2


@pytest.mark.parametrize(("text", "moved"), [("90s", 90), ("5m", 300), ("1h", 3600), ("40d", 3456000)])
def test_a_duration_is_parsed(text: str, moved: int) -> None:
    assert units.seconds(text) == moved


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1.5h", "1y"])
def test_a_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        units.seconds(text)


def test_a_shifted_clock_is_a_drop_in_that_runs_the_units_last_command() -> None:
    drop_in = units.launched("[Service]\nExecStart=\nExecStart=/usr/bin/one --flag $MORE\n", 60)
    assert drop_in == f"[Service]\nExecStart=\nExecStart={units.LATER} 60 /usr/bin/one --flag $MORE\n"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="clocks are moved on x86-64 alone")
def test_the_replaced_vdso_function_is_found_with_enough_space() -> None:
    with open("/proc/self/maps") as maps:
        line = next(line for line in maps if line.rstrip().endswith("[vdso]"))
    begin, end = (int(address, 16) for address in line.split()[0].split("-"))
    mapped = ctypes.string_at(begin, end - begin)
    function, free, code = later.replacement(mapped, 60)
    assert 0 < function < free
    assert len(code) <= len(mapped) - free


def test_a_manifest_of_kubeadm_is_converted_to_a_command_line() -> None:
    manifest = {"spec": {"containers": [{"command": ["etcd", "--name=cloud"]}]}}
    assert cloud.command(manifest) == ["/usr/bin/etcd", "--name=cloud", "--unsafe-no-fsync"]


def test_kubeadm_gets_the_cgroup_driver_of_the_machine() -> None:
    for legacy, driver in ((True, "cgroupfs"), (False, "systemd")):
        documents = {
            each["kind"]: each for each in yaml.safe_load_all(cloud.configuration(legacy_cgroups=legacy))
        }
        assert documents["KubeletConfiguration"]["cgroupDriver"] == driver
    assert yaml.safe_load(node.join_configuration("edge-1"))["nodeRegistration"]["name"] == "edge-1"


def test_an_archive_has_the_files_of_an_image(tmp_path: Path) -> None:
    def file(archive: tarfile.TarFile, name: str) -> bytes:
        held = archive.extractfile(name)
        assert held is not None
        return held.read()

    program_file = tmp_path / "program"
    program_file.write_text("the program")
    program_file.chmod(0o755)
    made = images.Image(
        ["example/one:1"], {"/bin/program": program_file}, ["/bin/program"], {"/bin/other": "program"}
    )
    images.write_archive(tmp_path / "all.tar", [made])
    with tarfile.open(tmp_path / "all.tar") as archive:
        (listed,) = json.loads(file(archive, "manifest.json"))
        assert listed["RepoTags"] == ["example/one:1"]
        assert json.loads(file(archive, listed["Config"]))["config"]["Entrypoint"] == ["/bin/program"]
        with tarfile.open(fileobj=io.BytesIO(file(archive, listed["Layers"][0]))) as layer:
            assert file(layer, "bin/program") == b"the program"
            assert layer.getmember("bin/other").linkname == "program"
            assert layer.getmember("bin").isdir()


def test_libraries_of_a_program_are_read_from_ldd() -> None:
    said = (
        "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f5a)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f5b)\n"
    )
    assert images.linked(said) == ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]


def test_a_missing_requirement_is_reported_in_one_line_with_exit_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert program.main(["up"]) == 2
    assert capsys.readouterr().err == "node: root is needed, for namespaces and mounts\n"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name in ("debootstrap", "apt-get") else name)
    with pytest.raises(commands.LackError, match="debootstrap not found; Debian's packages are debootstrap"):
        commands.require_machine()


def test_an_unknown_command_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(program, "require_machine", lambda: None)
    assert program.main(["--name", "none", "sh"]) == 1
    assert "edge-1 of none does not run" in capsys.readouterr().err
