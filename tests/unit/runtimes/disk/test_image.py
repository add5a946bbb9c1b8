from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.runtimes.disk import image as images
from paddock.runtimes.disk.image import is_mounted, mount_image, unmount_image, used_bytes


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    image, target = tmp_path / "disk.img", tmp_path / "folder with space"
    yield image, target
    unmount_image(image, target)


def loops(image: Path) -> str:
    return subprocess.run(["losetup", "-j", str(image)], capture_output=True, text=True, check=True).stdout


@pytest.mark.needs("root", "loop-mount")
def test_an_image_is_mounted_with_its_size_and_goes_without_a_trace(places: tuple[Path, Path]) -> None:
    image, target = places
    mount_image(image, target, 16 << 20, owner=70000)
    assert is_mounted(target)
    assert target.stat().st_uid == 70000
    assert image.stat().st_blocks * 512 < 4 << 20, "sparse"
    assert used_bytes(target) < 2 << 20
    with pytest.raises(OSError, match="No space left"):
        (target / "file").write_bytes(b"x" * (17 << 20))
    line = next(
        line for line in Path("/proc/mounts").read_text().splitlines() if target.name.split()[0] in line
    )
    assert "nosuid" in line
    assert "nodev" in line
    unmount_image(image, target)
    unmount_image(image, target)
    assert not is_mounted(target)
    assert loops(image) == ""


@pytest.mark.needs("root", "loop-mount")
def test_a_mount_that_fails_leaves_nothing(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    image, target = places
    real = images._run

    def no_mount(name: str, *args: str) -> None:
        real("false" if name == "mount" else name, *args)

    monkeypatch.setattr(images, "_run", no_mount)
    with pytest.raises(errors.Unavailable) as caught:
        mount_image(image, target, 16 << 20, owner=0)
    assert caught.value.reason == "disk_image_failed"
    assert not image.exists()
    assert not is_mounted(target)


def test_a_disk_too_small_for_a_file_system_is_refused(places: tuple[Path, Path]) -> None:
    image, target = places
    with pytest.raises(errors.Invalid) as caught:
        mount_image(image, target, 1000, owner=0)
    assert caught.value.reason == "disk_too_small"
    assert not image.exists()
