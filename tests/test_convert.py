"""`convert`: the same rows in another number format, through files."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import embeddings, installed

import afltool
from afltool.errors import InvalidDataError, MismatchError, OutputExistsError, UsageError
from afltool.files.features import open_features
from afltool.math.gram import real


def values(path):
    with open_features(path) as rows:
        return real(rows.rows(0, len(rows)))


@pytest.fixture
def as_float32(tmp_path):
    return afltool.import_embeddings(
        embeddings(tmp_path / "x.npz", 300), tmp_path / "float32.h5", dtype="float32"
    )


@pytest.mark.parametrize("bits", [0, 3, 9])
def test_converting_from_float32_is_extracting_so(bits, as_float32, tmp_path):
    direct = afltool.import_embeddings(
        tmp_path / "x.npz", tmp_path / "direct.h5", fraction_bits=bits
    )
    converted = afltool.convert(as_float32, tmp_path / "converted.h5", fraction_bits=bits)
    assert afltool.verify(converted)["digest"] == afltool.verify(direct)["digest"]
    assert afltool.info(converted)["space"] == afltool.info(direct)["space"]


def test_fewer_bits_are_the_nearest_multiples_and_more_are_the_same(road, tmp_path):
    before = values(road.train)
    fewer = afltool.convert(road.train, tmp_path / "3.h5", fraction_bits=3)
    assert np.array_equal(values(fewer), np.rint(before * 8) / 8)
    assert not np.array_equal(values(fewer), before)
    more = afltool.convert(road.train, tmp_path / "11.h5", fraction_bits=11)
    floats = afltool.convert(road.train, tmp_path / "f.h5", dtype="float32")
    assert np.array_equal(values(more), before)
    assert np.array_equal(values(floats), before)
    back = afltool.convert(floats, tmp_path / "back.h5")
    assert afltool.verify(back)["digest"] == afltool.verify(road.train)["digest"]


def test_rows_classes_and_partition_stay_and_the_origin_is_recorded(road, tmp_path):
    path = afltool.convert(road.train, tmp_path / "3.h5", fraction_bits=3)
    with open_features(path) as ours, open_features(road.train) as theirs:
        assert np.array_equal(ours.row_ids, theirs.row_ids)
        assert np.array_equal(ours.labels, theirs.labels)
        assert ours.classes == theirs.classes
        assert ours.header["source"]["converted_from"] == {
            "digest": theirs.header["digest"], "dtype": "int16", "fraction_bits": 9,
        }  # fmt: skip
    stats = afltool.local_stats(path, road.head0, tmp_path / "s", partition=road.clients)
    parts = afltool.aggregate([stats], tmp_path / "parts.h5")
    whole = afltool.local_stats(
        path, "linear", tmp_path / "whole.h5", partition=road.clients, sum=True
    )
    assert afltool.info(parts)["digest"] == afltool.info(whole)["digest"]


def test_statistics_of_other_bits_do_not_add_up_nor_score(road, tmp_path):
    test = afltool.convert(road.test, tmp_path / "3.h5", fraction_bits=3)
    stats = afltool.local_stats(test, road.head0, tmp_path / "stats", client="one")
    with pytest.raises(MismatchError, match="fraction_bits"):
        afltool.aggregate([road.total, stats], tmp_path / "no.h5")
    with pytest.raises(MismatchError, match="fraction_bits"):
        afltool.evaluate(road.head, test)


def test_what_does_not_fit_is_refused_and_nothing_is_left(road, tmp_path):
    largest = np.abs(values(road.train)).max()
    assert 1 < largest < 16, "the premise"
    with pytest.raises(InvalidDataError, match=r"train\.h5: row .* --fraction-bits 11 would hold"):
        afltool.convert(road.train, tmp_path / "14.h5", fraction_bits=14)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="it would be lost"):
        afltool.convert(road.train, road.train, fraction_bits=3, overwrite=True)
    with pytest.raises(UsageError, match="0 to 15"):
        afltool.convert(road.train, tmp_path / "16.h5", fraction_bits=16)


def test_the_command_again_is_up_to_date_and_another_format_is_not(road, tmp_path):
    out = tmp_path / "3.h5"
    first = installed("convert", road.train, "--fraction-bits", 3, "-o", out)
    assert (first.returncode, first.stdout) == (0, f"{out}\n")
    written = out.stat().st_mtime_ns
    assert installed("convert", road.train, "--fraction-bits", 3, "-o", out).returncode == 0
    assert out.stat().st_mtime_ns == written
    with pytest.raises(OutputExistsError, match="fraction_bits"):
        afltool.convert(road.train, out, fraction_bits=4)
    refused = installed("convert", road.total, "-o", tmp_path / "x.h5")
    assert refused.returncode == 2
    assert "statistics" in refused.stderr
