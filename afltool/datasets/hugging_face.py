"""Data sets of Hugging Face's library: of the Hub or its cache by name, or in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import InputError, InvalidDataError
from ..options.common import BEHIND_COLON
from ..plugins import need
from .base import (
    DatasetRequest,
    ImageDataset,
    digest,
    file_states,
    image_column,
    label_names,
    make_dataset,
    number_rows,
)
from .pixels import decode


def open_rows(request: DatasetRequest) -> ImageDataset:
    """The rows of a split in their order; the labels alone are read.

    NAME or NAME:CONFIG is of the Hub or its cache; what begins with ``.`` or ``/`` is a folder that
    `save_to_disk` wrote. Images are the one column of type ``Image``;
    labels are texts, numbers, or ``ClassLabel``. Row ids are SPLIT/ROW, from 0.
    """
    need(request.spec, "hf-data", "datasets")
    import datasets

    every, split, label = _splits(request), request.split, request.y
    if split not in every:
        raise InvalidDataError(
            f"{request.spec}: expected the split {split}, found {', '.join(map(str, every))}"
        )
    data = every[split]
    ids, describe = number_rows(request, len(data))
    images = [name for name, of in data.features.items() if isinstance(of, datasets.Image)]
    column = image_column(request, request.spec, [*data.features], images)
    pixels = data.select_columns([column]).cast_column(column, datasets.Image(decode=False))

    def load(i: int) -> Any:
        cell = pixels[i][column] or {}
        content, path = cell.get("bytes"), Path(cell.get("path") or "")
        if content is None and path.is_file():  # of a folder of images in the cache
            content = path.read_bytes()
        return decode(content or b"", describe(i))

    names, labels = (), None
    if not request.unlabeled:
        names = tuple(getattr(data.features[label], "names", ()))
        table = data.with_format("arrow").select_columns([label])[:]
        labels = label_names(f"{request.spec}, {split} split", label, table, names)
    states = file_states(Path(one["filename"]) for one in data.cache_files)
    source = digest("hf", *states, column, label)
    return make_dataset(request, ids, labels, source, load, describe, names)


def _splits(request: DatasetRequest) -> dict[str, Any]:
    """The data by split; what is not cut is for training."""
    import datasets

    name, _, config = request.path.partition(":")
    cache = None if request.data_root is None else str(request.data_root)
    try:
        if folder := BEHIND_COLON.path(request.spec):
            found = datasets.load_from_disk(folder)
        else:
            found = datasets.load_dataset(name, config or None, cache_dir=cache)
    # Network, disk and the formats of the library fail with unrelated classes.
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{request.spec}: {text}; a name of the Hub is hf:NAME or hf:NAME:CONFIG, and a folder "
            "that save_to_disk wrote begins with / or ."
        ) from error
    return {"train": found} if isinstance(found, datasets.Dataset) else dict(found)
