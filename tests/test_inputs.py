"""Files from outside: regular ones only, up to a limit, and text that is what it says."""

from __future__ import annotations

import io
import lzma
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers_images import write_imagefolder
from PIL import Image, features

import afltool
from afltool import inputs
from afltool.datasets import open_dataset, read_classes
from afltool.datasets.base import CorruptImageError
from afltool.datasets.folders import EXTENSIONS
from afltool.datasets.pixels import FORMATS, decode
from afltool.embeddings.readers import read_labels
from afltool.errors import (
    AflError,
    CorruptFileError,
    InputError,
    InvalidDataError,
    UsageError,
)

# ---------------------------------------------------------------- pictures


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(boom) print\nshowpage\n"


def as_bytes(kind, **options):
    out = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(out, kind, **options)
    return out.getvalue()


def test_a_picture_that_is_a_program_is_not_run(tmp_path, monkeypatch):
    """Pillow starts Ghostscript for EPS, whatever the file is called."""
    marker = tmp_path / "ran"
    fake = tmp_path / "bin" / "gs"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\ntouch {marker}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    with pytest.raises(Exception, match=r"."), Image.open(io.BytesIO(EPS)) as image:
        image.load()
    assert marker.exists(), "the premise: Pillow by itself runs it"
    marker.unlink()
    with pytest.raises(CorruptImageError, match="expected one of the formats BMP"):
        decode(EPS, "x.png")
    assert not marker.exists()


def test_only_the_formats_of_the_docs_are_decoded():
    """Cameras write MPO files called .jpg; of several pictures the first counts."""
    for kind in ("ICO", "PDF", "TGA", "PCX", "ICNS", "SGI", "DDS"):
        with pytest.raises(CorruptImageError, match="expected one of the formats"):
            decode(as_bytes(kind), "x.png")
    for kind in FORMATS:
        if kind != "WEBP" or features.check("webp"):
            assert decode(as_bytes(kind), "x").size == (8, 8)
        assert any(kind.lower().startswith(ending[1:4]) for ending in EXTENSIONS)
    data = as_bytes("MPO", save_all=True, append_images=[Image.new("RGB", (8, 8), "blue")])
    assert np.asarray(decode(data, "x.jpg"))[0, 0, 0] > 200


def test_16_bits_take_little_memory_beside_the_picture():
    data = io.BytesIO()
    Image.fromarray(np.full((1000, 1000), 40_000, np.uint16)).save(data, "PNG")
    decode(data.getvalue(), "x")
    tracemalloc.start()
    decode(data.getvalue(), "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6e6, "12 MB and more as int64"


def test_a_picture_that_is_no_file_or_of_gigabytes_is_refused_unread(tmp_path):
    root = write_imagefolder(tmp_path, per_class=2)
    bad = root / "train" / "line" / "0000.png"
    for make, said in (
        (os.mkfifo, "expected a regular file"),
        (lambda p: p.symlink_to("/dev/zero"), "expected a regular file"),
        (gigabytes, "expected at most 360 MB, found 3,000 MB"),
    ):
        bad.unlink()
        make(bad)
        dataset = open_dataset(f"imagefolder:{root}", "train")
        with pytest.raises(CorruptImageError, match=said):
            dataset.load(dataset.row_ids.tolist().index(b"train/line/0000.png"))


def gigabytes(path):
    with path.open("wb") as file:
        file.truncate(3 * 10**9)


# ---------------------------------------------------------------- texts


READERS = {
    "classes": read_classes,
    "labels": read_labels,
    "toml": lambda p: inputs.read_toml(p, "options"),
    "json": lambda p: inputs.read_json(p, "a table"),
    "table": lambda p: open_dataset(f"table:{p}", "train"),
    "npy": lambda p: afltool.import_embeddings(p, p.with_name("o.h5")),
}


def named(tmp_path, name):
    return tmp_path / {"table": "t.csv", "npy": "x.npz"}.get(name, "t.txt")


@pytest.mark.parametrize("name", READERS)
def test_only_regular_files_of_a_sane_size_are_read(tmp_path, name):
    tracemalloc.start()
    for make in (os.mkfifo, lambda p: p.symlink_to("/dev/zero"), Path.mkdir, gigabytes):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        make(path := named(folder, name))
        with pytest.raises(AflError, match=str(path)):
            READERS[name](path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    with pytest.raises(UsageError, match=r"without NUL bytes; found .*x\\x00y"):
        READERS[name](named(Path("x\0y"), name))


def test_odd_json_and_toml_are_refused(tmp_path):
    texts = ["[" * 100_000, '{"a":' * 50_000, "9" * 5000, '{"a": 1', "\ud800", "[1e999999]x"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.json").write_text(text, errors="surrogatepass")
        with pytest.raises(CorruptFileError, match=rf"{number}\.json"):
            inputs.read_json(tmp_path / f"{number}.json", "a table")
    texts = ["a = " + "[" * 100_000, "a = " + "9" * 5000, "a", "\x00", "é\udcff"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(CorruptFileError, match=rf"{number}\.toml"):
            inputs.read_toml(tmp_path / f"{number}.toml", "options")


def test_stdin_without_end_is_refused():
    class Endless:
        def readline(self, size):
            return "y\n"

    with pytest.raises(InputError, match="at most 1,000 lines"):
        list(inputs.iter_lines(Endless(), 1000))
    with pytest.raises(InputError, match="line 1 of stdin: expected a path"):
        list(inputs.iter_lines(io.StringIO("\0" * 10**6)))


# ---------------------------------------------------------------- arrays


def npy(header, data=b""):
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def npz(path, x, y=None, how=zipfile.ZIP_DEFLATED, names=("x.npy", "y.npy")):
    labels = npy(
        "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}", bytes(8) + b"\1" + bytes(7)
    )
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr(names[0], x)
        archive.writestr(names[1], labels if y is None else y)
    return path


GOOD = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}", bytes(48))


HEADERS = {
    "negative": "{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -3)}",
    "nested": "{'descr': " + "[" * 3000 + "]" * 3000 + ", 'fortran_order': False, 'shape': (2, 3)}",
    "digits": "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 5000 + ", 1)}",
    "huge": "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 3)}",
    "half": "{'descr': '<f8', 'fortran_order'",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}",
    "text": "{'descr': '<U9', 'fortran_order': False, 'shape': (2, 3)}",
    "no numbers": "{'descr': '<f8', 'fortran_order': False, 'shape': ()}",
    "wide": "{'descr': '|i1', 'fortran_order': False, 'shape': (2, 2000000000)}",
}


@pytest.mark.filterwarnings("ignore")  # NumPy's, on headers of Python 2
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_an_odd_header_is_refused(tmp_path, suffix):
    (tmp_path / "y.txt").write_text("0\n1\n")
    labels = tmp_path / "y.txt" if suffix == ".npy" else None
    for name, text in HEADERS.items():
        path, data = tmp_path / f"{name}{suffix}", npy(text, bytes(48))
        npz(path, data) if suffix == ".npz" else path.write_bytes(data)
        with pytest.raises(InputError, match=rf"{name}\.np"):
            afltool.import_embeddings(path, tmp_path / "o.h5", labels=labels)
        assert not (tmp_path / "o.h5").exists()


LONG_LABELS = "{'descr': '<U100000000', 'fortran_order': False, 'shape': (2,)}"


def encrypted(path):
    npz(path, GOOD)
    data = bytearray(path.read_bytes())
    for start, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the flag in both of a member's headers
        place = data.find(start)
        while place >= 0:
            data[place + at] |= 1
            place = data.find(start, place + 4)
    path.write_bytes(data)


def damaged_lzma(path):
    npz(path, GOOD + os.urandom(20), how=zipfile.ZIP_LZMA)
    data = bytearray(path.read_bytes())
    data[60:80] = b"\xff" * 20
    path.write_bytes(data)


def test_an_odd_archive_is_refused(tmp_path):
    for number, make in enumerate((
        encrypted,
        damaged_lzma,
        lambda p: npz(p, GOOD, names=("x", "y")),
        lambda p: npz(p, GOOD, names=("y.npy", "z.npy")),
        lambda p: npz(p, GOOD, y=npy(LONG_LABELS)),
        lambda p: npz(p, GOOD, y=GOOD[:40]),
        lambda p: npz(p, b""),
    )):  # fmt: skip
        make(tmp_path / f"{number}.npz")
        with pytest.raises(InputError, match=rf"{number}\.npz"):
            afltool.import_embeddings(tmp_path / f"{number}.npz", tmp_path / "o.h5")
    npz(tmp_path / "x.npz", GOOD)
    assert afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "o.h5").exists(), "the premise"
    with pytest.raises(lzma.LZMAError), zipfile.ZipFile(tmp_path / "1.npz") as archive:
        archive.read("x.npy")


def test_a_small_archive_of_very_many_rows_takes_no_memory(tmp_path):
    """30 million zeros, deflated to 0.03 MB; ids and labels of such rows would take gigabytes."""
    n = 30_000_000
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, shape in (("x", f"({n}, 1)"), ("y", f"({n},)")):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                file.write(npy(f"{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}}}"))
                for _ in range(n // 10**7):
                    file.write(bytes(10**7))
    tracemalloc.start()
    with pytest.raises(InvalidDataError, match="expected at most 20,000,000 rows"):
        afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "o.h5")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000_000
