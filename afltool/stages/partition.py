"""Stage `partition`: row ids and labels → which client owns which row. Features are never read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..digest import file_sha256
from ..errors import CorruptFileError, InputError, InvalidDataError, MismatchError, UsageError
from ..files import Partition, load_partition, recipe, save_partition, up_to_date
from ..partitions import assign, canonical_order, summary
from ..store.features import open_features


def partition(
    features: str | Path,
    out: str | Path,
    *,
    scheme: str = "dirichlet",
    clients: int | None = None,
    seed: int = 0,
    alpha: float | None = None,
    shards_per_client: int | None = None,
    min_size: int | None = None,
    held_out: float = 0.0,
    label_noise: float = 0.0,
    table: str | Path | None = None,
    column: str | None = None,
    balance_cap: bool = False,
    top_up: bool = False,
    overwrite: bool = False,
) -> Path:
    """Deal the rows of a feature file to clients; see `afltool.partitions.assign` for the schemes.

    ``table``: for the schemes by-attribute and file, a CSV, parquet or JSON table with a column
    ``row`` (row ids) and the column named by ``column`` (for file: ``client``). A table of images,
    as `extract` takes it, has ``path`` instead of ``row`` and may name other images as well.
    """
    path, out = Path(features), Path(out)
    with open_features(path) as rows:
        ids, labels, classes = rows.row_ids, rows.labels, rows.classes
    order = canonical_order(ids)
    ids, labels = ids[order], labels[order]
    settings: dict[str, Any] = {
        "scheme": scheme,
        "clients": clients,
        "seed": seed,
        "alpha": alpha,
        "shards_per_client": shards_per_client,
        "min_size": min_size,
        "held_out": held_out,
        "label_noise": label_noise,
        "balance_cap": balance_cap,
        "top_up": top_up,
    }
    attribute = _attribute(scheme, table, column, ids)
    shown = {k: v for k, v in settings.items() if v not in (None, False, 0.0) or k == "seed"}
    if table is not None:
        shown["column"] = column or "client"
    made_by = _recipe(shown, ids, labels, classes, table)
    if up_to_date(out, made_by, overwrite):
        return out
    dealt = assign(ids, labels, len(classes), attribute=attribute, **settings)
    p = Partition(
        ids,
        labels,
        dealt.labels,
        dealt.client,
        dealt.names,
        dealt.held_out,
        classes,
        shown,
    )
    return save_partition(out, p, made_by)


def _recipe(
    settings: Mapping[str, Any],
    ids: NDArray[np.bytes_],
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    table: str | Path | None,
) -> dict[str, Any]:
    from ..files import rows_digest

    inputs: dict[str, Any] = {"rows": rows_digest(ids, labels), "classes": list(classes)}
    if table is not None:
        inputs["table"] = file_sha256(Path(table))
    return recipe("partition", settings, inputs)


def _attribute(
    scheme: str, table: str | Path | None, column: str | None, ids: NDArray[np.bytes_]
) -> NDArray[Any] | None:
    """The values of a table's column, one per row id in the order given."""
    wanted = scheme in ("by-attribute", "file")
    if wanted != (table is not None):
        raise UsageError(
            f"the scheme {scheme!r} needs --table FILE"
            if wanted
            else f"--table belongs to the schemes by-attribute and file; found {scheme!r}"
        )
    if table is None:
        return None
    if scheme == "by-attribute" and not column:
        raise UsageError("by-attribute needs --column NAME: whose values are the clients")
    frame = read_table(Path(table))
    name = column or "client"
    of_images = "row" not in frame.columns and "path" in frame.columns
    if of_images:
        frame = frame.rename(columns={"path": "row"})
    missing = [c for c in ("row", name) if c not in frame.columns]
    if missing:
        raise InvalidDataError(
            f"{table} has the columns {', '.join(map(str, frame.columns))}; expected 'row' and "
            f"{name!r}"
        )
    return _by_row(Path(table), frame, name, ids, of_images)


def read_table(path: Path) -> pd.DataFrame:
    """A CSV, parquet or JSON (records) table; `CorruptFileError` says what is wrong with it."""
    readers: dict[str, Any] = {
        ".csv": lambda p: pd.read_csv(p, dtype={"row": str, "path": str}),
        ".parquet": pd.read_parquet,
        ".json": lambda p: pd.read_json(p, orient="records", dtype={"row": str, "path": str}),
    }
    if path.suffix not in readers:
        raise UsageError(f"{path}: a table is a .csv, .parquet or .json file")
    if not path.is_file():
        raise InputError(f"there is no file {path}: check the path")
    try:
        frame: pd.DataFrame = readers[path.suffix](path)
    except ImportError:
        raise UsageError("reading parquet needs pyarrow: pip install 'afltool[import]'") from None
    except (ValueError, OSError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} cannot be read as {path.suffix}: {error}") from None
    return frame


def _by_row(
    path: Path, frame: pd.DataFrame, name: str, ids: NDArray[np.bytes_], others: bool
) -> NDArray[Any]:
    """The values of the rows ``ids``; ``others``: the table may have more rows than these."""
    values = frame.set_index(frame["row"].astype(str))[name]
    if not values.index.is_unique:
        twice = values.index[values.index.duplicated()][0]
        raise InvalidDataError(f"{path}: row {twice!r} is given more than once")
    names = [i.decode() for i in ids.tolist()]
    missing = [n for n in names if n not in values.index]
    strangers = len(values) - (len(names) - len(missing))
    if missing or (strangers and not others):
        example = f", such as {missing[0]!r}" if missing else ""
        raise MismatchError(
            f"{path} must have each of the {len(names)} rows once: {len(missing)} are missing"
            f"{example}, {strangers} are not in the features"
        )
    found = values.loc[names]
    if found.isna().any():
        raise InvalidDataError(f"{path}: {int(found.isna().sum())} rows have no {name!r}")
    array = found.to_numpy()
    return array if array.dtype.kind in "iuf" else np.asarray(array.astype(str))


def describe(path: str | Path) -> dict[str, Any]:
    """The table that people look at before they trust a partition."""
    p = load_partition(Path(path))
    s = summary(p.client, p.effective_labels, len(p.names), len(p.classes))
    return {
        "path": str(path),
        "digest": p.digest(),
        "scheme": dict(p.scheme),
        "rows": len(p.row_ids),
        "clients": len(p.names),
        "empty_clients": s.empty_clients,
        "held_out_clients": int(p.held_out.sum()),
        "rows_per_client": {"min": s.min_rows, "median": s.median_rows, "max": s.max_rows},
        "classes_per_client": {
            "min": int(s.classes_per_client.min()),
            "median": float(np.median(s.classes_per_client)),
            "max": int(s.classes_per_client.max()),
        },
        "mean_total_variation": s.mean_total_variation,
        "relabelled_rows": int((p.labels != p.effective_labels).sum()),
    }


def export(path: str | Path, table: str | Path) -> Path:
    """Write the assignment as CSV, parquet or JSON: row, client, label, held_out."""
    p, table = load_partition(Path(path)), Path(table)
    names = np.array(p.names)
    frame = pd.DataFrame(
        {
            "row": [i.decode() for i in p.row_ids.tolist()],
            "client": names[p.client],
            "label": p.effective_labels,
            "held_out": p.held_out[p.client],
        }
    )
    writers: dict[str, Any] = {
        ".csv": lambda f: frame.to_csv(f, index=False),
        ".parquet": lambda f: frame.to_parquet(f, index=False),
        ".json": lambda f: frame.to_json(f, orient="records"),
    }
    if table.suffix not in writers:
        raise UsageError(f"{table}: an export is a .csv, .parquet or .json file")
    beside = table.with_name(table.name + ".partial")
    try:
        writers[table.suffix](beside)
        os.replace(beside, table)
    except ImportError:
        raise UsageError("writing parquet needs pyarrow: pip install 'afltool[import]'") from None
    except OSError as error:
        raise InputError(f"cannot write {table}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
    return table
