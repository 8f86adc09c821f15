"""The userland of machines: Debian by debootstrap, and a layer with the dependencies of hub and manager.

Both are made once per user and never changed: machines mount overlays over them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.node_machine.commands import FailedError, LackError, run, say
from scripts.node_machine.instances import ROOT, cache_folder

SUITE = "trixie"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "procps", "kmod", "iproute2", "ethtool", "socat", "openssl", "curl"),
    *("iptables", "nftables", "conntrack", "runc", "busybox-static", "ca-certificates"),
    *("bind9-dnsutils", "netcat-openbsd"),
    *("python3", "python3-venv", "libstdc++6", "libfaketime"),
)
MASKED = (
    *(
        "systemd-sysctl.service",
        "systemd-modules-load.service",
        "systemd-udevd.service",
        "systemd-logind.service",
    ),
    *(
        "console-getty.service",
        "getty.target",
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
    ),
    *("e2scrub_all.timer", "fstrim.timer", "systemd-random-seed.service", "systemd-update-utmp.service"),
    *("sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount", "dev-hugepages.mount"),
)
"""Units that are useless on a machine without its own kernel, or that would change this machine's."""
CHECKOUT, WHEELS = "/srv/edgehub", "/srv/wheels"
"""Paths on each machine: the checkout, read-only, and the wheels of the hub's dependencies."""
HUB, MANAGER = "/srv/hub", "/srv/manager"
"""The environments on each machine in which the checkout's hub and manager run."""
INSTALL = f"""\
set -eu
pip() {{
    "/srv/$each/bin/pip" --disable-pip-version-check -q "$@" --no-deps -r "/locks/$each.lock"
}}
for each in hub manager; do
    python3 -m venv "/srv/$each"
    pip download --require-hashes -d {WHEELS}
    pip install --no-index --find-links {WHEELS}
    echo {CHECKOUT} >"$(echo /srv/$each/lib/python3*/site-packages)/checkout.pth"
done
command() {{
    printf '#!%s -B\\nfrom edgehub import %s\\n%s()\\n' "$1" "$2" "$2" >"/usr/local/bin/$3"
    chmod 755 "/usr/local/bin/$3"
}}
command {HUB}/bin/python hub edgehub
command {MANAGER}/bin/python manager edgehub-manager
"""
"""Shell script that makes the Python environments of the checkout, and its commands `edgehub` and `edgehub-manager`."""
NETWORK_FILES = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""The files by which this machine reaches the package index."""


def ensure_userland() -> list[Path]:
    """Return the layers of a machine's root, the uppermost first; make the missing ones. Raises LackError."""
    base = _ensure("userland", [SUITE, *PACKAGES, *MASKED], _bootstrap)
    locks = [(ROOT / "requirements" / f"{name}.lock").read_text() for name in ("hub", "manager")]
    hub = _ensure("python", [base.name, INSTALL, *locks], lambda folder: _install(base, folder))
    return [hub, base]


def _ensure(kind: str, made_of: Sequence[str], make: Callable[[Path], None]) -> Path:
    """Return the folder of this kind for these inputs. A missing one is made under another name and renamed, so that no
    folder is incomplete."""
    digest = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    folder = cache_folder(os.environ) / f"{kind}-{digest}"
    if not folder.exists():
        with locked(folder):
            if not folder.exists():
                unfinished = folder.with_suffix(".unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir(parents=True)
                make(unfinished)
                unfinished.rename(folder)
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock, so that no other run makes the same folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run makes {folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bootstrap(folder: Path) -> None:
    say(f"making the userland of Debian {SUITE} (2 minutes, once per user)")
    try:
        # With private mounts: if it is killed, none remain.
        alone = ("unshare", "--mount", "debootstrap", "--variant=minbase")
        run(*alone, f"--include={','.join(PACKAGES)}", SUITE, folder, timeout=1800)
    except FailedError as error:
        raise LackError(f"debootstrap cannot make {SUITE}: {error.args[0].splitlines()[-1]}") from error
    for unit in MASKED:
        (folder / "etc/systemd/system" / unit).symlink_to("/dev/null")
    (folder / "etc/machine-id").write_text("")
    (folder / "var/log/journal").mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "var/cache/apt/archives", ignore_errors=True)


def _install(base: Path, folder: Path) -> None:
    say(
        "installing what hub and manager depend on into a layer above the userland (a minute, once for each lock)"
    )
    work, root = folder.with_suffix(".work"), folder.with_suffix(".root")
    for each in (work, root):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    try:
        run(
            "unshare",
            "--mount",
            "sh",
            "-euc",
            ENTER,
            "sh",
            base,
            folder,
            work,
            root,
            stdin=_script(),
            timeout=1800,
        )
    except FailedError as error:
        raise LackError(
            f"the package index gives no environment: {error.args[0].splitlines()[-1]}"
        ) from error
    finally:
        for each in (work, root):
            shutil.rmtree(each, ignore_errors=True)
    for name in ("etc", "locks", "tmp", "root"):
        shutil.rmtree(folder / name, ignore_errors=True)


ENTER = """\
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
mount -t proc proc "$4/proc"
mount --rbind /dev "$4/dev"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$4" sh
"""


def _script() -> str:
    """Return the installation as a script that contains its files."""
    files = {f"/locks/{name}.lock": ROOT / "requirements" / f"{name}.lock" for name in ("hub", "manager")}
    files |= {name: Path(name) for name in NETWORK_FILES if Path(name).exists()}
    written = [
        f"mkdir -p '{Path(name).parent}'\ncat >'{name}' <<'END-OF-FILE'\n{path.read_text()}\nEND-OF-FILE\n"
        for name, path in files.items()
    ]
    return "".join([*written, INSTALL])
