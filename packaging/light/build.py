"""Build both distributions of this source: `afltool`, and `afltool-light`, without PyTorch.

    pip install ./packaging/light                 the light one into this environment
    python packaging/light/build.py DIST          both wheels and both sdists
    python packaging/light/build.py DIST light    only those of afltool-light; full: of afltool

The light one has the same modules and the same version; its pyproject.toml is the one of this
repository without `LEFT_OUT` and the extras that need it. Only pip is needed. For pip this module
is the build backend (PEP 517) of the folder that it lies in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ("afltool", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml")
LEFT_OUT = ("torch", "torchvision")
EXTRAS = ("demo", "timm", "open-clip", "hf", "dev")  # that need them

SDIST = """
import contextlib, os, sys
from setuptools.build_meta import build_sdist
with contextlib.redirect_stdout(open(os.devnull, "w")):
    build_sdist(sys.argv[1])
"""


def light(text: str) -> str:
    """The pyproject.toml of the light build."""
    for name in LEFT_OUT:
        text, found = re.subn(rf'^    "{name}>=.*\n', "", text, flags=re.M)
        assert found == 1, f"expected one line of {name}, found {found}"
    for extra in EXTRAS:
        text = without(text, extra)
    onnx = r'^(fast = \[)("onnx(?:script)?>=[^"]*", )+'  # PyTorch makes graphs with them
    text = re.sub(onnx, r"\1", text, flags=re.M)
    text = text.replace('\nname = "afltool"\n', '\nname = "afltool-light"\n')
    return re.sub(r'"afltool\[', '"afltool-light[', text)


def without(text: str, key: str) -> str:
    """A TOML text without the lines of a key; its value may go over several."""
    before, first, rest = text.partition(f"\n{key} = ")
    assert first, f"expected {key}"
    lines = rest.splitlines(keepends=True)
    for end in range(1, len(lines)):
        with suppress(tomllib.TOMLDecodeError):
            tomllib.loads("x = " + "".join(lines[:end]))
            return before + "\n" + "".join(lines[end:])
    raise AssertionError(f"{key} has no end")


@contextmanager
def source(change: bool) -> Iterator[Path]:
    """A copy of the source, which building leaves its files in; the light one with ``change``."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "source"
        copy.mkdir()
        for name in SOURCE:
            if (ROOT / name).is_dir():
                shutil.copytree(
                    ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(ROOT / name, copy / name)
        if change:
            project = copy / "pyproject.toml"
            project.write_text(light(project.read_text(encoding="utf-8")), encoding="utf-8")
        yield copy


def build_wheel(wheel_directory: str, *_: Any, **__: Any) -> str:
    """The wheel of afltool-light, as pip asks its build backend for it."""
    from setuptools import build_meta  # in pip's environment for building

    out, here = str(Path(wheel_directory).resolve()), Path.cwd()
    with source(change=True) as copy:
        os.chdir(copy)
        try:
            return str(build_meta.build_wheel(out))
        finally:
            os.chdir(here)


def build(out: Path, change: bool) -> None:
    """One wheel and one sdist into the folder ``out``."""
    with source(change) as copy, tempfile.TemporaryDirectory() as folder:
        pip, to = [sys.executable, "-m", "pip", "--quiet"], str(out.resolve())
        subprocess.run([*pip, "wheel", "--no-deps", "-w", to, str(copy)], check=True)
        tools = Path(folder) / "tools"  # pip itself builds no sdist
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        wanted = tomllib.loads(text)["build-system"]["requires"]
        subprocess.run([*pip, "install", "--target", str(tools), *wanted], check=True)
        env = {**os.environ, "PYTHONPATH": str(tools)}
        subprocess.run([sys.executable, "-c", SDIST, to], cwd=copy, env=env, check=True)


def main(out: Path, which: str = "both") -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in ("full", "light"):
        if which in (name, "both"):
            build(out, change=name == "light")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
