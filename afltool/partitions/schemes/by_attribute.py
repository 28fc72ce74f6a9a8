"""One client for each value of a column: hospital, user, camera; as `file` without numbers."""

from .file import deal as deal
