"""The doctor loads filter files as the hub would, in a process without more rights than the hub."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from addons.install.checks.filter_checks import check_filters
from tests.addons.support.filter_plugins import write

GOOD = """
class Hiding:
    name = "acme-hide"
    resources = frozenset({("", "services")})
    components = frozenset({"kube-proxy"})
    verbs = frozenset({"list", "watch"})
    reasons = frozenset({"hidden"})

    def apply(self, obj, inputs, note=None):
        raise NotImplementedError

print("a file may print")
FILTERS = (Hiding(),)
"""
RIGHTS = """
from pathlib import Path
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print({name: status[name].strip() for name in ("CapEff", "CapPrm", "NoNewPrivs")})
try:
    Path(__file__).with_name("written").write_text("x")
except OSError as error:
    raise ValueError(
        f"{int(status['CapEff'], 16)} {int(status['CapPrm'], 16)} {status['NoNewPrivs'].strip()} {error.strerror}"
    )
"""


@pytest.mark.parametrize(
    ("text", "disabled", "said"),
    [
        (GOOD, [], "ok       filters      acme-hide can be loaded"),
        (GOOD, ["acme-hide", "servicetopology"], "ok       filters      acme-hide can be loaded"),
        (GOOD, ["acme-other"], "failed .* --disabled-filters acme-other: no file and no package has such a"),
        (GOOD.replace("acme-hide", "hide"), [], "failed .*acme.py: .*hide"),
        (
            GOOD + "Hiding.after = ('nobody',)",
            [],
            "failed .* acme-hide is ordered by 'nobody', and there is no such",
        ),
        (
            "import nothing_such",
            [],
            "failed .*acme.py: ModuleNotFoundError: .*; the hub does not start without",
        ),
        ("import os\nos._exit(3)", [], "failed .* ended with status 3 as it was loaded"),
        ("while True: pass", [], "failed .*acme.py: not loaded after 3 s"),
        (RIGHTS, [], "failed .*acme.py: ValueError: 0 0 1 File too large"),
    ],
)
def test_the_doctor_reports_how_a_file_of_filters_affects_the_hub(
    tmp_path: Path, text: str, disabled: list[str], said: str
) -> None:
    file = tmp_path / "acme.py"
    write(file, text)
    found = check_filters([file], disabled, limit=3.0 if text.startswith("while") else 60.0)
    assert re.match(said, str(found)), found


def test_a_relative_path_of_a_filter_file_is_refused() -> None:
    found = check_filters([Path("acme.py")], [])
    assert str(found).startswith("failed   filters      acme.py: give the absolute path")


def test_without_files_there_are_no_findings() -> None:
    assert check_filters([], []) is None
