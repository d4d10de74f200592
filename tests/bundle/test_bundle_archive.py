"""A bundle that anybody may have made is refused in a line that names the member, or unpacked as plain files."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.bundle import archive
from llmexp.bundle.archive import unpack, unpacked
from llmexp.errors import ConfigError


def tar_of(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for member in members:
            file.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, size
    return made


TARS: dict[str, tuple[tarfile.TarInfo, ...]] = {
    "a link": (member("s/link", tarfile.SYMTYPE, "/etc/passwd"),),
    "link to 's/a'": (member("s/a"), member("s/hard", tarfile.LNKTYPE, "s/a")),
    "absolute name": (member("/etc/odd"),),
    "..": (member("s/../../odd"),),
    "no regular file": (member("s/device", tarfile.CHRTYPE),),
    "'s/pipe' is no": (member("s/pipe", tarfile.FIFOTYPE),),
    "there twice": (member("s/a"), member("s/a")),
    "deeper": (member("/".join("abcdefghij")),),
    "characters": (member("s/\x1b]0;owned\x07"),),
    "read": (member("s"), member("s/a")),
}


@pytest.mark.parametrize("said", TARS)
def test_an_odd_tar_is_refused_in_a_line(said: str, tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    with pytest.raises(ConfigError) as error:
        unpack(tar_of(tmp_path / "odd.tar.gz", *TARS[said]), tmp_path / "into")
    assert said in str(error.value)
    assert "\x1b" not in str(error.value)
    assert "\n" not in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {"into", "odd.tar.gz"}


def zip_of(path: Path, change: Callable[[zipfile.ZipInfo], object], name: str = "s/a") -> Path:
    with zipfile.ZipFile(path, "w") as file:
        info = zipfile.ZipInfo(name)
        change(info)
        file.writestr(info, "target")
    return path


def as_link(info: zipfile.ZipInfo) -> None:
    info.external_attr = (stat.S_IFLNK | 0o777) << 16


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [("s/a", as_link, "'s/a' is a link"), ("../a", id, ".."), ("/a", id, "absolute"), ("C:/a", id, "absolute")],
)
def test_an_odd_zip_is_refused_in_a_line(name, change, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        unpack(zip_of(tmp_path / "odd.zip", change, name), tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_large_and_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tar_of(tmp_path / "a.tgz", *(member(f"s/{number}", size=10) for number in range(3)))
    for name, most, said in (
        ("MOST_MEMBERS", 2, "'s/2' is one of more than 2"),
        ("LONGEST_LINES_BYTES", 9, "'s/0' has 10 bytes, more than 9"),
        ("LARGEST_BYTES", 25, "'s/2' makes the bundle larger than 25"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(archive, name, most)
            with pytest.raises(ConfigError, match=said):
                unpack(bundle, tmp_path / name)


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    for name in ("a.zip", "a.tar.gz"):
        (tmp_path / name).write_bytes(b"\x1f\x8b and no more")
        with pytest.raises(ConfigError, match=f"{name} is not a readable bundle"):
            unpack(tmp_path / name, tmp_path / "into")


def test_what_is_unpacked_is_plain_and_nobody_elses(tmp_path: Path) -> None:
    odd = member("s/run.sh", size=3)
    odd.mode = 0o4777
    folder = unpacked(tar_of(tmp_path / "a.tgz", odd))
    assert stat.S_IMODE((folder / "s/run.sh").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert unpacked(tmp_path / "a.tgz") == folder


@pytest.mark.parametrize(
    "kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE], ids=repr
)
def test_a_head_that_states_gibibytes_is_refused_before_it_is_read(tmp_path: Path, kind: bytes) -> None:
    """5 GiB of zeros are 5 MB in a file, and tarfile reads a head whole."""
    stated = tarfile.TarInfo("././@LongLink")
    stated.type, stated.size = kind, 5 * 2**30
    with gzip.open(tmp_path / "odd.tar.gz", "wb", compresslevel=1) as file:
        file.write(member("s/first").tobuf() + stated.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            file.write(bytes(2**20))
    (tmp_path / "into").mkdir()
    tracemalloc.start()
    with pytest.raises(ConfigError, match="the head of a member has 5368709120 bytes"):
        unpack(tmp_path / "odd.tar.gz", tmp_path / "into")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 2**24


def test_a_damaged_zip_of_any_method_is_a_line(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED):
        path = tmp_path / f"odd{method}.zip"
        with zipfile.ZipFile(path, "w", method) as file:
            file.writestr("s/a", os.urandom(4096))
        content = bytearray(path.read_bytes())
        content[200:2000] = os.urandom(1800)
        path.write_bytes(content)
        (into := tmp_path / f"into{method}").mkdir()
        with pytest.raises(ConfigError, match="is not a readable bundle"):
            unpack(path, into)
