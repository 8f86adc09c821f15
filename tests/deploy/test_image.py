"""The images: built by the Containerfile from Debian's packages and the locked wheels, and run by a pod's spec."""

from __future__ import annotations

import filecmp
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from addons.install.services.system_services import static_pod
from scripts.building.image import DATE, Builder, CannotBuildError, storage_folder
from tests.cloud.real import RealCloud
from tests.deploy.support.pod import API, Pod, pod_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


class Image:
    """An image, built and unpacked at `root`."""

    def __init__(self, builder: Builder, target: str) -> None:
        self._builder = builder
        name = builder.build(target)
        self.configuration = json.loads(builder.run("inspect", "--type=image", name))["OCIv1"]["config"]
        self._container = builder.run("from", name)
        self.root = Path(builder.run("mount", self._container))

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment that the image sets for its programs."""
        return dict(each.split("=", 1) for each in self.configuration["Env"])

    def size(self) -> int:
        """Return the bytes of its files."""
        return sum(path.lstat().st_size for path in self.root.rglob("*") if path.is_file())

    def close(self) -> None:
        """Delete the unpacked files."""
        self._builder.run("umount", self._container)
        self._builder.run("rm", self._container)


@pytest.fixture(scope="module")
def builder() -> Builder:
    """Skip the tests if no image can be built."""
    try:
        made = Builder(storage_folder())
        made.make_base()
    except CannotBuildError as error:
        pytest.skip(f"no image can be built here: {error}")
    return made


@pytest.fixture(scope="module", params=["hub", "manager"])
def image(builder: Builder, request: pytest.FixtureRequest) -> Iterator[Image]:
    """Each image, one after the other."""
    built = Image(builder, request.param)
    yield built
    built.close()


def test_an_image_runs_unprivileged_and_contains_no_compiler(
    image: Image, capsys: pytest.CaptureFixture[str]
) -> None:
    assert image.configuration["User"] == "65532:65532"
    assert image.configuration["Cmd"][0] in {"edgehub", "edgehub-manager"}
    assert (image.root / "opt/edgehub/bin" / image.configuration["Cmd"][0]).exists()
    everywhere = ":".join(
        str(image.root / folder.lstrip("/")) for folder in image.environment["PATH"].split(":")
    )
    compilers = ("gcc", "cc", "g++", "clang", "ld", "as", "rustc", "go")
    assert [name for name in compilers if shutil.which(name, path=everywhere)] == []
    packages = next((image.root / "opt/edgehub/lib").glob("python3*")) / "site-packages"
    assert not {"pip", "setuptools", "pytest"} & {path.name for path in packages.iterdir()}
    size = image.size()
    with capsys.disabled():
        print(f"\nimage {image.configuration['Cmd'][0]}: {size / 1e6:.0f} MB unpacked")
    # The bound of an unpacked image, for nodes with small disks.
    largest = 500_000_000
    assert size < largest


def test_bytecode_is_validated_by_source_digests(image: Image) -> None:
    """A .pyc records whether Python validates it by the source's digest (1: unchecked) or by its date (0)."""
    assert {path.read_bytes()[4] for path in image.root.glob("opt/edgehub/lib/**/*.pyc")} == {1}


def test_all_files_of_an_image_have_one_date(image: Image) -> None:
    """Cached layers of a build have the date set for it."""
    folder = image.root / "opt/edgehub"
    dates = {path.lstat().st_mtime for path in (folder, *folder.rglob("*"))}
    assert dates == {DATE}


def test_archives_have_no_timestamps_of_the_build(builder: Builder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("of now")
    name = "localhost/edgehub-archive:test"
    container = builder.run("from", "scratch")
    builder.run("add", container, str(tmp_path / "file"), "/")
    builder.run("commit", "--quiet", "--rm", f"--timestamp={DATE}", container, name)
    first, second = tmp_path / "first.oci.tar", tmp_path / "second.oci.tar"
    for file in (first, second):
        builder.write(name, file)
    builder.run("rmi", "--force", name)
    assert filecmp.cmp(first, second, shallow=False)
    with tarfile.open(first) as archive:
        members = archive.getmembers()
    assert [each.name for each in members] == sorted(each.name for each in members)
    assert {each.mtime for each in members} == {DATE}
    assert {"index.json", "oci-layout"} < {each.name for each in members}


@pytest.mark.usefixtures("plain_manifests")
def test_the_images_run_with_the_specs_of_the_pods(
    image: Image, empty_cloud: RealCloud, tmp_path: Path
) -> None:
    kubeconfig = "/etc/kubernetes/edgehub.conf"
    if image.configuration["Cmd"] == ["edgehub-manager"]:
        path = "/apis/apps/v1/namespaces/kube-system/deployments/edgehub-manager"
        pod = Pod(empty_cloud, pod_of(empty_cloud.admin.get(path)), tmp_path, image.environment, image.root)
    else:
        arguments = ["--kubeconfig", kubeconfig, "--node", "n1"]
        spec = json.loads(static_pod("edgehub", arguments, kubeconfig, ("127.0.0.1", 10267)))
        identity = {kubeconfig: empty_cloud.node_kubeconfig("n1", API)}
        pod = Pod(empty_cloud, spec, tmp_path, image.environment, image.root, identity)
    with pod:
        pod.wait_until_ready()
