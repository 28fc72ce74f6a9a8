"""Data sets in their true on-disk formats, the damage they can have, and images of every mode."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers_images import (
    md5_of,
    write_cifar10,
    write_cifar100,
    write_fashion_mnist,
    write_imagefolder,
    write_tiny_imagenet,
)
from PIL import Image

from afltool.datasets import open_dataset, read_classes, tiny_imagenet, torchvision_datasets
from afltool.datasets.base import CorruptImageError, DatasetRequest, ImageDataset
from afltool.datasets.pixels import decode
from afltool.errors import CorruptFileError, InputError, InvalidDataError, UsageError


def pixels(dataset: ImageDataset, i: int) -> np.ndarray:
    image = dataset.load(i)
    assert image.mode == "RGB"
    return np.asarray(image)


# --- what every data set promises -----------------------------------------------------------------


def test_unknown_names_list_what_exists_and_the_root_is_the_variable_or_a_folder_here(monkeypatch):
    for spec in ("mnist", "imagefolder:", "imagefolder", ""):
        with pytest.raises(UsageError, match="digits, fashion-mnist, cifar10"):
            open_dataset(spec, "train")
    with pytest.raises(UsageError, match="train and test"):
        open_dataset("digits", "val")
    monkeypatch.setenv("AFLTOOL_DATA", "/big/disk")
    asked = DatasetRequest("digits", "", "train")
    assert asked.root == Path("/big/disk")
    monkeypatch.delenv("AFLTOOL_DATA")
    assert asked.root == Path("afl-data")


def test_limit_spreads_over_classes_and_keeps_ids_and_order(tmp_path):
    root = write_imagefolder(tmp_path, ("a", "b", "c"), per_class=5)
    for name in ("0003", "0004"):
        (root / "train" / "b" / f"{name}.png").unlink()
    spec = f"imagefolder:{root}"
    whole = open_dataset(spec, "train")
    ids = whole.row_ids.tolist()
    # b has three rows only; the others take its turns
    for limit, counts in ((2, [1, 1, 0]), (7, [3, 2, 2]), (12, [5, 3, 4]), (1000, [5, 3, 5])):
        dataset = open_dataset(spec, "train", limit=limit)
        assert np.bincount(dataset.labels, minlength=3).tolist() == counts
        assert dataset.row_ids.tolist() == sorted(dataset.row_ids.tolist())
        for i, j in enumerate(map(ids.index, dataset.row_ids.tolist())):
            assert dataset.labels[i] == whole.labels[j]
            assert dataset.describe(i) == whole.describe(j)
            np.testing.assert_array_equal(pixels(dataset, i), pixels(whole, j))
        assert (dataset.fingerprint == whole.fingerprint) == (limit == 1000)


# --- digits ---------------------------------------------------------------------------------------


def test_digits_are_split_by_a_fixed_rule():
    """Every fifth of a class is for testing; 16 levels of grey become 256."""
    from sklearn.datasets import load_digits

    bunch, seen, is_test = load_digits(), dict.fromkeys(range(10), 0), []
    train, test = open_dataset("digits", "train"), open_dataset("digits", "test")
    assert (len(train), len(test)) == (1442, 355)
    assert train.row_ids[[0, -1]].tolist() == [b"train/0000", b"train/1441"]
    assert train.classes == tuple("0123456789")
    for label in bunch.target.tolist():
        is_test.append(seen[label] % 5 == 4)
        seen[label] += 1
    expected = bunch.images[np.array(is_test)]
    np.testing.assert_array_equal(test.labels, bunch.target[np.array(is_test)])
    for i in (0, 7, 354):
        grey = np.rint(expected[i] * 255 / 16).astype(np.uint8)
        np.testing.assert_array_equal(pixels(test, i), np.repeat(grey[..., None], 3, axis=2))
    assert test.describe(7) == "row 7 of digits, test split"
    assert train.fingerprint != test.fingerprint
    turned = open_dataset("digits", "test", classes=["x", *reversed(test.classes)])
    np.testing.assert_array_equal(turned.labels, 10 - test.labels)
    assert turned.fingerprint != test.fingerprint
    with pytest.raises(InvalidDataError, match="not in the given list of 3: 3, 4, 5, 6, 7 and 2"):
        open_dataset("digits", "test", classes=["0", "1", "2"])


# --- published files ------------------------------------------------------------------------------

WRITERS = {
    "cifar10": lambda root: write_cifar10(root, 53, 20, seed=1),
    "cifar100": lambda root: write_cifar100(root, 200, 100),
    "fashion-mnist": lambda root: write_fashion_mnist(root, 30, 20),
}


@pytest.fixture
def published(monkeypatch):
    """``published(folder)``: from now on the published checksums are those of these files."""
    from torchvision.datasets import CIFAR10, CIFAR100

    def publish(folder):
        sums = md5_of(folder)
        for cls in (CIFAR10, CIFAR100):
            for name in ("train_list", "test_list"):
                listed = [[file, sums.get(file, md5)] for file, md5 in getattr(cls, name)]
                monkeypatch.setattr(cls, name, listed)
            meta = {**cls.meta, "md5": sums.get(cls.meta["filename"], cls.meta["md5"])}
            monkeypatch.setattr(cls, "meta", meta)
        for file in folder.glob("*.gz"):  # of which the unpacked files have checksums
            plain = hashlib.md5(gzip.decompress(file.read_bytes())).hexdigest()
            monkeypatch.setitem(torchvision_datasets.FASHION_MNIST_MD5, file.stem, plain)

    return publish


@pytest.mark.parametrize(
    ("name", "split"), [("cifar10", "train"), ("cifar100", "test"), ("fashion-mnist", "test")]
)
def test_published_files_are_read_as_torchvision_reads_them(tmp_path, name, split, published):
    """Fashion-MNIST packed or not, as one."""
    from torchvision import datasets

    published(WRITERS[name](tmp_path))
    packed = open_dataset(name, split, data_root=tmp_path)
    for file in tmp_path.rglob("*.gz"):
        file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
        file.unlink()
    found = open_dataset(name, split, data_root=tmp_path)
    assert found.fingerprint == packed.fingerprint
    theirs_of = datasets.FashionMNIST if name == "fashion-mnist" else vars(datasets)[name.upper()]
    theirs = theirs_of(str(tmp_path), train=split == "train")
    assert found.classes == tuple(theirs.classes)
    assert found.row_ids[0].startswith(f"{split}/0".encode())
    assert (found.row_ids.dtype.kind, found.labels.dtype) == ("S", np.int64)
    assert found.describe(7) == f"row 7 of {name}, {split} split"
    assert found.labels.tolist() == np.asarray(theirs.targets).tolist()
    for i in range(len(theirs)):
        np.testing.assert_array_equal(pixels(found, i), np.asarray(theirs[i][0].convert("RGB")))


@pytest.mark.parametrize(
    ("name", "file", "below"),
    [
        ("fashion-mnist", "train-images-idx3-ubyte.gz", "FashionMNIST/raw"),
        ("cifar100", "cifar-100-python.tar.gz", "."),
    ],
)
def test_missing_files_are_named_with_what_to_fetch_and_where(
    tmp_path, internet, monkeypatch, name, file, below
):
    monkeypatch.setattr(torchvision_datasets, "DEBIAN_FASHION_MNIST", tmp_path / "debian")
    with pytest.raises(InputError) as caught:
        open_dataset(name, "train", data_root=tmp_path / "empty")
    message = str(caught.value)
    assert [Path(url).name for url in internet.asked] == [file]
    for part in (f"Fetch {file}", str(tmp_path / "empty" / below), "Name or service not known"):
        assert part in message
    assert "http" not in message
    assert caught.value.exit_code == 3


def test_files_with_another_checksum_are_refused_before_they_are_unpickled(tmp_path):
    WRITERS["fashion-mnist"](tmp_path)
    with pytest.raises(CorruptFileError, match=r"train-.*expected the published MD5 f4a8712d"):
        open_dataset("fashion-mnist", "train", data_root=tmp_path)
    WRITERS["cifar10"](tmp_path)
    for i in range(1, 6):
        (tmp_path / "cifar-10-batches-py" / f"data_batch_{i}").write_bytes(b"%d: no pickle" % i)
    with pytest.raises(CorruptFileError, match="data_batch_1: expected the published MD5 c99cafc1"):
        open_dataset("cifar10", "train", data_root=tmp_path)


# --- ImageFolder ----------------------------------------------------------------------------------


def test_imagefolder_lists_by_the_bytes_of_the_path(tmp_path, caplog):
    """Classes by their bytes; what is not read is counted and named."""
    root = write_imagefolder(tmp_path, ("Zebra", "ape", "ape-man"), per_class=1)
    train = root / "train"
    for name in ("ape/b/deep/x.JPG", "ape/b/0.jpeg", "ape/B.PNG", "ape/a b.png", "loose.jpg"):
        (train / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(train / name)
    for name in ("ape/notes.txt", "ape/.hidden.png", "ape/._B.PNG", "README.md"):
        (train / name).write_bytes(b"no image")
    (train / ".cache").mkdir()
    (train / "Zebra" / "linked").symlink_to(train / "ape" / "b" / "deep")
    with caplog.at_level("INFO", logger="afltool"):
        dataset = open_dataset(f"imagefolder:{root}", "train")
    assert dataset.classes == ("Zebra", "ape", "ape-man")
    names = ("Zebra/0000.png Zebra/linked/x.JPG ape-man/0000.png ape/0000.png ape/B.PNG "
             "ape/a_b.png ape/b/0.jpeg ape/b/deep/x.JPG")  # fmt: skip
    expected = [f"train/{name.replace('_', ' ')}".encode() for name in names.split()]
    assert dataset.row_ids.tolist() == expected
    assert dataset.labels.tolist() == [0, 0, 2, 1, 1, 1, 1, 1]
    assert dataset.describe(7) == str(train / "ape" / "b" / "deep" / "x.JPG")
    with ThreadPoolExecutor(4) as pool:
        for i, image in enumerate(pool.map(dataset.load, range(8))):
            theirs = np.asarray(Image.open(dataset.describe(i)))
            np.testing.assert_array_equal(np.asarray(image), theirs)
    left = "train/.cache, train/README.md, train/ape/._B.PNG, train/ape/.hidden.png, train/ape/n"
    assert f"5 files are no images by their names: {left}" in caplog.text
    assert "1 images lie outside the folders of classes" in caplog.text
    assert [r.levelname for r in caplog.records] == ["INFO", "WARNING"]


def test_the_fingerprint_of_a_folder_knows_names_sizes_and_times(tmp_path):
    root = write_imagefolder(tmp_path / "a", per_class=2)
    spec = f"imagefolder:{root}"
    file, prints = root / "train" / "line" / "0001.png", [open_dataset(spec, "train").fingerprint]
    for more in (b"", b"x"):
        file.write_bytes(file.read_bytes() + more)
        os.utime(file, ns=(1, 1))
        prints.append(open_dataset(spec, "train").fingerprint)
    file.rename(file.with_name("0002.png"))
    prints.append(open_dataset(spec, "train").fingerprint)
    assert len(set(prints)) == 4
    shutil.copytree(root, tmp_path / "b")  # keeps the times
    assert open_dataset(f"imagefolder:{tmp_path / 'b'}", "train").fingerprint == prints[-1]


def test_given_classes_fix_the_order_and_allow_a_gap(tmp_path):
    root = write_imagefolder(tmp_path, ("cat", "dog"), per_class=2)
    file = tmp_path / "classes.txt"
    file.write_text("dog\r\nemu \ncat\n\n")
    classes = read_classes(file)
    dataset = open_dataset(f"imagefolder:{root}", "train", classes=classes)
    assert dataset.classes == ("dog", "emu", "cat")
    assert dataset.labels.tolist() == [2, 2, 0, 0]
    (root / "train" / "cow").mkdir()
    with pytest.raises(InvalidDataError, match="not in the given list of 3: cow"):
        open_dataset(f"imagefolder:{root}", "train", classes=classes)
    (root / "train" / "cow").rename(root / "train" / "emu")  # a folder without images is a gap too
    assert len(open_dataset(f"imagefolder:{root}", "train", classes=classes)) == 4
    for names, found in (([], "found none"), (["a", "b", "a"], "a twice")):
        with pytest.raises(UsageError, match=found):
            open_dataset("digits", "test", classes=names)
        file.write_text("\n".join(names))
        with pytest.raises(UsageError, match=found):
            read_classes(file)
    with pytest.raises(InputError, match="cannot read the class names"):
        read_classes(tmp_path / "missing")


def test_folders_that_cannot_be_used_are_named(tmp_path):
    spec = f"imagefolder:{tmp_path}"

    def refused(message, split="train", spec=spec, **options):
        with pytest.raises(InputError, match=message):
            open_dataset(spec, split, **options)

    refused(f"expected one folder of images per class in {tmp_path}, found none")
    refused("cannot list .*nowhere: No such file", spec=f"{spec}/nowhere")
    (tmp_path / "train" / "a").mkdir(parents=True)
    refused(f"cannot list {tmp_path}/test: No such file", "test")
    refused("expected images in the split train, found none", classes=["a", "b"])
    write_imagefolder(tmp_path, ("b",), splits=("train",))
    refused("1 of 2 class folders hold no images: a")
    (tmp_path / "train" / "a").rmdir()
    refused("at least two classes, found 1")
    (tmp_path / "train" / "b" / "again").symlink_to(tmp_path / "train" / "b")
    refused("more than 8 symbolic links")


# --- Tiny-ImageNet --------------------------------------------------------------------------------


def test_tiny_imagenet_in_its_own_layout(tmp_path):
    folder = write_tiny_imagenet(tmp_path, n_classes=3, per_class=2)
    train = open_dataset("tiny-imagenet", "train", data_root=tmp_path)
    test = open_dataset("tiny-imagenet", "test", data_root=tmp_path)
    assert train.classes == test.classes == tuple(sorted(train.classes))
    wnid = train.classes[0]
    assert train.row_ids[0] == f"train/{wnid}/images/{wnid}_0.JPEG".encode()
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert test.row_ids.tolist() == [f"val/images/val_{i}.JPEG".encode() for i in range(6)]
    assert test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert test.describe(0) == str(folder / "val" / "images" / "val_0.JPEG")
    assert test.load(0).size == (64, 64)


def test_a_damaged_or_sorted_tiny_imagenet_is_named(tmp_path):
    (tmp_path / "tiny-imagenet-200").mkdir()
    with pytest.raises(InputError, match=r"cannot read the classes of Tiny-ImageNet.*wnids\.txt"):
        open_dataset("tiny-imagenet", "train", data_root=tmp_path)
    (tmp_path / "tiny-imagenet-200").rmdir()
    folder = write_tiny_imagenet(tmp_path)
    table = folder / "val" / "val_annotations.txt"
    text = table.read_text()
    first, _, rest = text.partition("\n")
    for damaged, message in (
        (rest, "found 5 names in 5 lines and 6 images"),
        (f"{text}{first}\n", "found 6 names in 7 lines and 6 images"),
        (text.replace("\t", " "), "a tab and its class; found 0 names in 6 lines"),
        (text.replace("n90007919", "n12345678"), "2 classes .*: n12345678, n90007919"),
    ):
        table.write_text(damaged)
        with pytest.raises(InvalidDataError, match=message):
            open_dataset("tiny-imagenet", "test", data_root=tmp_path)
    table.write_text(text)
    (folder / "val" / "n90000000").mkdir()
    name = "val_0.JPEG"
    (folder / "val" / "images" / name).rename(folder / "val" / "n90000000" / name)
    with pytest.raises(InvalidDataError, match="val was sorted into class folders, unpack"):
        open_dataset("tiny-imagenet", "test", data_root=tmp_path)
    for path in (folder / "train" / "n90007919" / "images").iterdir():
        path.unlink()
    with pytest.raises(InvalidDataError, match="1 classes have no images"):
        open_dataset("tiny-imagenet", "train", data_root=tmp_path)


def test_tiny_imagenet_is_fetched_checked_and_unpacked_whole(tmp_path, internet, monkeypatch):
    folder = write_tiny_imagenet(tmp_path / "published")
    archive = Path(shutil.make_archive(str(folder), "zip", folder.parent, folder.name))
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    internet.files[archive.name] = archive.read_bytes()
    root = tmp_path / "root"
    root.mkdir()
    message = r"\(RuntimeError\)\. Fetch tiny-imagenet-200\.zip \(MD5 90528d.* put it into .*root"
    with pytest.raises(InputError, match=message):
        open_dataset("tiny-imagenet", "train", data_root=root)  # of another MD5
    assert set(internet.asked) == {tiny_imagenet.TINY_IMAGENET_URL}
    for file in root.iterdir():
        file.unlink()
    monkeypatch.setattr(tiny_imagenet, "TINY_IMAGENET_MD5", md5)
    dataset = open_dataset("tiny-imagenet", "train", data_root=root)
    assert dataset.load(0).size == (64, 64)
    assert {p.name for p in root.iterdir()} == {"tiny-imagenet-200", "tiny-imagenet-200.zip"}
    shutil.rmtree(root / "tiny-imagenet-200")
    (root / "tiny-imagenet-200.zip").write_bytes(archive.read_bytes()[:-7])
    assert len(open_dataset("tiny-imagenet", "train", data_root=root)) == len(dataset), "again"


# --- images of every mode -------------------------------------------------------------------------


def encoded(image: Image.Image, fmt: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    image.save(out, fmt, **options)
    return out.getvalue()


RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)
GREY = np.repeat(RAMP[..., None], 3, axis=2)


def test_grey_palette_alpha_and_cmyk_become_rgb():
    grey = Image.fromarray(RAMP)
    palette = grey.convert("P")
    transparent = palette.copy()
    transparent.info["transparency"] = bytes([0, 128] + [255] * 254)
    alpha = grey.convert("LA")
    alpha.putalpha(7)
    rgba = grey.convert("RGBA")
    rgba.putalpha(0)
    cases = {
        "grey": encoded(grey),
        "palette": encoded(palette),
        "transparent palette": encoded(transparent, transparency=transparent.info["transparency"]),
        "grey with alpha": encoded(alpha),
        "RGBA": encoded(rgba),
        "GIF": encoded(palette, "GIF"),
        "BMP": encoded(grey, "BMP"),
        "PPM": encoded(grey, "PPM"),
        "TIFF": encoded(grey, "TIFF"),
        "WebP": encoded(grey.convert("RGB"), "WEBP", lossless=True),
    }
    for name, data in cases.items():
        image = decode(data, name)
        assert image.mode == "RGB", name
        np.testing.assert_array_equal(np.asarray(image), GREY, err_msg=name)
    red = Image.new("RGB", (16, 16), (200, 30, 30)).convert("CMYK")
    image = decode(encoded(red, "JPEG", quality=100), "red.jpg")
    assert np.abs(np.asarray(image).astype(int) - (200, 30, 30)).max() <= 3


def test_16_bits_are_scaled_and_not_clipped():
    values = np.array([[0, 128, 129], [257, 32768, 65535]], np.uint16)
    expected = np.rint(values / 257).astype(np.uint8)
    for fmt in ("PNG", "TIFF"):
        image = decode(encoded(Image.fromarray(values), fmt), fmt)
        np.testing.assert_array_equal(np.asarray(image), np.repeat(expected[..., None], 3, axis=2))
    data = encoded(Image.fromarray(values), "TIFF", tiffinfo={262: 0})  # white is zero
    assert Image.open(io.BytesIO(data)).tag_v2[262] == 0, "the premise"
    assert np.array_equal(np.asarray(decode(data, "white.tif"))[..., 0], 255 - expected)
    wide = Image.fromarray(np.array([[0, 70000]], np.int32))
    with pytest.raises(CorruptImageError, match="integers from 0 to 70000"):
        decode(encoded(wide, "TIFF"), "wide.tif")
    floats = Image.fromarray(np.array([[0.0, 0.5]], np.float32))
    with pytest.raises(CorruptImageError, match="floating-point"):
        decode(encoded(floats, "TIFF"), "floats.tif")


def test_orientation_is_not_applied_and_pages_are_not_guessed():
    picture = Image.fromarray(np.repeat(GREY[:, :8], 1, axis=0))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90°
    for form in ("JPEG", "PNG", "WEBP"):
        turned = decode(encoded(picture, form, exif=exif), "turned")
        assert (turned.size, len(turned.info["remarks"])) == ((8, 16), 1)
    turned = decode(encoded(picture, "TIFF", tiffinfo={0x0112: 6}), "turned.tif")
    assert turned.info["remarks"] == []
    assert turned.size == (16, 8), "a TIFF's own, as Pillow has it"
    frames = [Image.new("L", (4, 4), value) for value in (10, 200)]
    data = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    with pytest.raises(CorruptImageError, match=r"two\.tif: it has 2 pages, expected one"):
        decode(data, "two.tif")
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(data, "two.gif").getpixel((0, 0)) == (10, 10, 10)


def bomb(side: int) -> bytes:
    """A PNG whose header announces ``side`` × ``side`` pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 9999))


WIDE = Image.fromarray(np.random.default_rng(0).integers(0, 2**16, (32, 32), dtype=np.uint16))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"this is text", "expected one of the formats BMP, GIF, JPEG"),
        (encoded(Image.fromarray(GREY).resize((256, 256)), "JPEG")[:1500], "truncated"),
        (encoded(Image.fromarray(GREY).resize((256, 256)))[:200], "."),
        (encoded(Image.fromarray(GREY))[:20], "."),
        *((encoded(WIDE, fmt)[:cut], ".") for fmt in ("PNG", "TIFF") for cut in (10, 40, -40)),
        (bomb(12_000), "pixels"),  # of which Pillow only warns
        (bomb(60_000), "pixels"),
    ],
)
def test_a_bad_image_is_named_with_the_reason(tmp_path, data, reason):
    root = write_imagefolder(tmp_path, per_class=1)
    bad = root / "train" / "line" / "0000.png"
    bad.write_bytes(data)
    dataset = open_dataset(f"imagefolder:{root}", "train")
    with pytest.raises(CorruptImageError, match=reason) as caught:
        dataset.load(1)
    assert caught.value.where == str(bad)
    assert dataset.load(0).size == (32, 32)


def test_a_file_that_may_not_be_read_is_like_a_corrupt_one_and_one_that_is_gone_is_not(tmp_path):
    root = write_imagefolder(tmp_path, per_class=1)
    dataset, file = open_dataset(f"imagefolder:{root}", "train"), root / "train/line/0000.png"
    file.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # root may read everything
        with pytest.raises(CorruptImageError, match="no permission"):
            dataset.load(1)
    finally:
        os.seteuid(user)
    file.unlink()
    with pytest.raises(InputError, match="It was there") as caught:
        dataset.load(1)
    assert not isinstance(caught.value, CorruptImageError)


# ---------------------------------------------------------------- folders that are not cut


def test_a_folder_without_train_and_test_is_all_of_it(tmp_path):
    root = write_imagefolder(tmp_path / "cut", ("ape", "bee"), per_class=3, splits=("train",))
    whole = open_dataset(f"imagefolder:{root / 'train'}", "train")
    cut = open_dataset(f"imagefolder:{root}", "train")
    assert whole.classes == cut.classes == ("ape", "bee")
    assert [b"train/" + name for name in whole.row_ids] == cut.row_ids.tolist()
    assert whole.labels.tolist() == cut.labels.tolist()
    for i in range(len(cut)):
        assert np.array_equal(np.asarray(whole.load(i)), np.asarray(cut.load(i)))
    with pytest.raises(InvalidDataError, match=r"all of its images are training.*afltool split"):
        open_dataset(f"imagefolder:{root / 'train'}", "test")


@pytest.mark.parametrize("names", [("Train", "Test"), ("ape", "Validation")])
def test_splits_of_other_names_are_not_taken_for_classes(tmp_path, names):
    write_imagefolder(tmp_path, names, per_class=1, splits=(".",))
    with pytest.raises(InvalidDataError, match="named like splits"):
        open_dataset(f"imagefolder:{tmp_path}", "train")
    meant = open_dataset(f"imagefolder:{tmp_path}", "train", classes=names)
    assert meant.classes == names
