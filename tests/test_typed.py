"""Options have the types of their fields, whoever gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import numpy as np
import pytest

from afltool.errors import UsageError
from afltool.heads import make_head
from afltool.options import typed


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        ("bool", True, True),
        ("int", np.int64(3), 3),
        ("float", 3, 3.0),
        ("float | None", None, None),
        ("str | float", "auto", "auto"),
        ("str | float", 2, 2.0),
        ("Path | None", "a/b", Path("a/b")),
        ("str | None", Path("a/b"), "a/b"),
        (float, 3, 3.0),
        (bool, False, False),
        (int | None, None, None),
        (str | float, "auto", "auto"),
        (Optional[float], 2, 2.0),  # noqa: UP045 - as heads of others may have it
        (Path | None, "a/b", Path("a/b")),
        (tuple[str, ...], ["a", "b"], ("a", "b")),
    ],
)
def test_what_fits_is_taken(annotation, value, expected):
    found = typed(annotation, "x", value)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        ("bool", 1, "--a-b takes true or false; found 1"),
        ("int", True, "a whole number; found True"),
        ("int", 1.0, "a whole number; found 1.0"),
        ("float", "x", "a number; found 'x'"),
        ("str", None, "a text; found None"),
        ("str | float", [1], r"a text or a number; found \[1\]"),
        (float, "x", "a number; found 'x'"),
        (int | None, 1.5, "a whole number; found 1.5"),
    ],
)
def test_what_does_not_fit_is_refused(annotation, value, words):
    with pytest.raises(UsageError, match=words):
        typed(annotation, "a_b", value)


@pytest.mark.parametrize(
    ("name", "options"),
    [("linear", {"intercept": -1e164}), ("deepafl", {"layers": "2"}), ("softmax", {"rounds": 2.5})],
)
def test_a_head_refuses_options_of_other_types(name, options):
    with pytest.raises(UsageError, match="takes"):
        make_head(name, options)
