"""Install each distribution into an empty environment and follow the tutorial that belongs to it.

    python packaging/try_builds.py            both
    python packaging/try_builds.py light      only afltool-light

Prints the sizes of the files and of what is installed, and the seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from tutorial_scripts import script  # noqa: E402 - the tests have it, and are beside the package

#: By distribution: the tutorial, and the extras that its commands need.
TRIED = {
    "afltool_light": ("researcher", "sklearn"),
    "afltool": ("consortium", "sklearn,plot,export,session"),
}


def run(*words: object, **options: object) -> None:
    subprocess.run([str(word) for word in words], check=True, **options)  # type: ignore[call-overload]


def megabytes(path: Path) -> float:
    """Of a file, or of all files below a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(f.lstat().st_size for f in files if f.is_file()) / 1e6


def environment(folder: Path, what: str) -> tuple[Path, float]:
    """A new environment with one distribution; the folder of its commands, and the seconds."""
    begun = time.perf_counter()
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", what)
    return folder / "bin", time.perf_counter() - begun


def modules(bin_folder: Path) -> set[str]:
    """The files of the package that an environment has."""
    where = "import afltool, pathlib; print(pathlib.Path(afltool.__file__).parent)"
    found = subprocess.check_output([bin_folder / "python", "-c", where], text=True, cwd="/")
    package = Path(found.strip())
    return {str(f.relative_to(package)) for f in package.rglob("*") if "__pycache__" not in f.parts}


def follow(page: str, bin_folder: Path, folder: Path) -> float:
    """Run every shell block of a tutorial; the seconds."""
    text = script(ROOT / "docs" / "tutorials" / f"{page}.md")
    own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env = {**own, "PATH": f"{bin_folder}:{own['PATH']}"}
    begun = time.perf_counter()
    run("bash", "-c", text, cwd=folder, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def tried(name: str, dist: Path, folder: Path) -> str:
    """Install and use one distribution; what is said of it."""
    page, extras = TRIED[name]
    (wheel,), (source,) = dist.glob(f"{name}-*.whl"), dist.glob(f"{name}-*.tar.gz")
    place, work = folder / name, folder / f"{name}-work"
    bin_folder, seconds = environment(place, f"{wheel}[{extras}]")
    run(bin_folder / "afltool", "--version")
    work.mkdir()
    used = follow(page, bin_folder, work)
    before = modules(bin_folder)
    assert before >= {n.removeprefix("afltool/") for n in files_of(wheel)}
    pip = [bin_folder / "python", "-m", "pip", "install", "--quiet", "--no-deps"]
    run(*pip, "--force-reinstall", source)
    assert modules(bin_folder) == before, "the sdist has other files than the wheel"
    files = f"wheel {megabytes(wheel):.2f} MB, sdist {megabytes(source):.2f} MB"
    installed = f"installed with [{extras}] {megabytes(place):.0f} MB in {seconds:.0f} s"
    return f"{name}: {files}, {installed}, tutorial {page} {used:.0f} s"


def files_of(wheel: Path) -> list[str]:
    return [n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("afltool/")]


def main(*names: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dist = Path(folder) / "dist"
        run(sys.executable, ROOT / "packaging" / "light" / "build.py", dist)
        for name in [f"afltool_{n}" if n == "light" else n for n in names] or TRIED:
            print(tried(name, dist, Path(folder)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
