"""Text of the user in shell scripts: the one place where it is quoted, or refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from ...errors import UsageError
from ...values.text import shown

_WORD = re.compile(r"[\w%+,./:=@-]+", re.ASCII)
#: sbatch takes a line with such a word for the start of another job, wherever the word stands.
_OTHER_JOB = re.compile(r"(?i)(?<=het|ack)(?=job)")


def quoted(value: object) -> str:
    r"""``value`` as one word of a shell.

    What a terminal cannot show is refused with `UsageError`: a newline would end the comment or the
    #SBATCH line that the word stands in, bytes that are not UTF-8 have no place in a text, and
    printed scripts must be those that are written.

    >>> quoted("a b")
    "'a b'"
    """
    text = str(value)
    if not text.isprintable():
        raise UsageError(
            f"a shell script cannot name {shown(text)}: expected characters that can be printed, "
            "found a control character or a byte that is not UTF-8; choose another name or folder"
        )
    return shlex.quote(text)


def line(words: Iterable[object]) -> str:
    """A command as one line of a script, each word quoted."""
    return " ".join(map(quoted, words))


def for_sbatch(value: object) -> str:
    r"""``value`` as one word of an #SBATCH line, which sbatch reads by rules of its own.

    A backslash escapes inside single quotes, too.

    >>> for_sbatch("it's a hetjob")
    '"it\'s a het\\job"'
    """
    quoted(value)
    text = str(value)
    if _WORD.fullmatch(text) and not _OTHER_JOB.search(text):
        return text
    return '"' + _OTHER_JOB.sub(r"\\", re.sub(r'([\\"])', r"\\\1", text)) + '"'


def log_folder(folder: object) -> str:
    """A folder in a pattern of ``--output``, where % begins the name of a number.

    A backslash in it would switch all patterns off, so that the tasks of an array wrote one log.
    """
    text = str(folder)
    if "\\" in text:
        raise UsageError(
            f"sbatch cannot write logs below {text}: expected a folder without a backslash in its "
            "path; choose another -o"
        )
    return text.replace("%", "%%")
