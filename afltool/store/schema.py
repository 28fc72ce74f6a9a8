"""Names, types and limits of the file format (docs/format.md); the only place that spells them."""

from __future__ import annotations

VERSION = 1

# attributes of the root group
FORMAT = "afltool_format"
FORMAT_VERSION = "afltool_version"
HEADER_SHA256 = "header_sha256"
COMPLETE = "complete"
ROWS_DONE = "rows_done"  # partial feature files only
RESUME_STATE = "resume_state"  # partial feature files only: JSON

# datasets
HEADER = "header"
FEATURES = "features"
LABELS = "labels"
ROW_IDS = "row_ids"
ARRAYS = "arrays"

KINDS = ("features", "partition", "statistics", "head")
PARTIAL = ".partial"
FEATURE_TYPES = {"int16": "<i2", "float32": "<f4"}
CHUNK_ROWS = 256  # rows of one chunk of /features: 0.25–1 MB, what a kill can cost
CHUNK_BYTES = 1 << 20  # other datasets
HEADER_LIMIT = 64 << 20
