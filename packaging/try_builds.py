"""Install each distribution into an empty environment and follow the researcher's tutorial.

    python packaging/try_builds.py            both
    python packaging/try_builds.py light      only afltool-light; full: only afltool

Prints the sizes of the files and of what is installed, and the seconds. afltool-light is measured
alone first, by the first block of the README, then with [fast], with which a frozen backbone gives
features; both have a limit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "packaging" / "light"))
from build import SOURCE  # noqa: E402
from tutorial_scripts import script  # noqa: E402 - the tests have it, and are beside the package

#: By distribution: its name in files, and the extras that are installed, sklearn for the tutorial.
TRIED = {"light": ("afltool_light", "sklearn"), "full": ("afltool", "sklearn,plot,export,session")}


#: What makes a frozen backbone, and what gives features by it.
FREEZE = "backbone timm:test_resnet --weights random --image-size 32 --license none -o net.afl"
EXTRACT = "extract --backbone net.afl --data imagefolder:scans --split train -o scans.h5"
#: The most that is installed, in MB (10^6 bytes of files), by distribution and extra.
MOST = {"light": {"": 400, "[fast]": 500}}


def run(*words: object, **options: object) -> None:
    subprocess.run([str(word) for word in words], check=True, **options)  # type: ignore[call-overload]


def megabytes(path: Path) -> float:
    """Of a file, or of all files below a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(f.lstat().st_size for f in files if f.is_file()) / 1e6


def environment(folder: Path, what: str, compiled: bool = False) -> tuple[Path, float]:
    """A new environment with one distribution; the folder of its commands, and the seconds.

    By uv where it lies beside this Python, else by pip; with all .pyc where sizes are measured.
    """
    begun = time.perf_counter()
    venv.create(folder, with_pip=True, symlinks=True)
    python, uv = folder / "bin" / "python", Path(sys.executable).with_name("uv")
    by_uv = [uv, "pip", "install", "--quiet", "--python", python]
    if compiled:
        by_uv.append("--compile-bytecode")
    if not uv.exists() or subprocess.run([*by_uv, what]).returncode:
        compile_or_not = "--compile" if compiled else "--no-compile"
        run(python, "-m", "pip", "install", "--quiet", compile_or_not, what)
    return folder / "bin", time.perf_counter() - begun


def modules(bin_folder: Path) -> set[str]:
    """The files of the package that an environment has."""
    where = "import afltool, pathlib; print(pathlib.Path(afltool.__file__).parent)"
    found = subprocess.check_output([bin_folder / "python", "-c", where], text=True, cwd="/")
    package = Path(found.strip())
    return {str(f.relative_to(package)) for f in package.rglob("*") if "__pycache__" not in f.parts}


def shell(text: str, bin_folder: Path, folder: Path) -> float:
    """Run lines of the shell with the commands of an environment; the seconds."""
    other = "PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"
    own = {k: v for k, v in os.environ.items() if k not in other}
    env = {**own, "PATH": f"{bin_folder}:{own['PATH']}"}
    begun = time.perf_counter()
    run("bash", "-c", text, cwd=folder, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def follow(page: str, bin_folder: Path, folder: Path) -> float:
    """Run every shell block of a tutorial; the seconds."""
    text = script(ROOT / "docs" / "tutorials" / f"{page}.md")
    return shell(text, bin_folder, folder)


def tried(which: str, dist: Path, folder: Path) -> Iterator[str]:
    """Install and use one distribution; what is said of it."""
    name, extras = TRIED[which]
    (wheel,), (source,) = dist.glob(f"{name}-*.whl"), dist.glob(f"{name}-*.tar.gz")
    yield f"{name}: wheel {megabytes(wheel):.2f} MB, sdist {megabytes(source):.2f} MB"
    place, work, followed = (folder / f"{name}{end}" for end in ("", "-work", "-tutorial"))
    work.mkdir()
    followed.mkdir()
    for extra, most in MOST.get(which, {}).items():
        at = folder / f"plain{extra}"
        bin_folder, seconds = (
            environment(at, f"{wheel}{extra}", compiled=True) if extra else begun(at, work)
        )
        size = megabytes(bin_folder.parent)
        yield f"{name}{extra}: installed {size:.0f} MB in {seconds:.0f} s"
        assert size <= most, f"expected at most {most} MB"
        if extra:
            yield extracted(bin_folder, work)
    bin_folder, seconds = environment(place, f"{wheel}[{extras}]")
    size, used = megabytes(place), follow("researcher", bin_folder, followed)
    there = modules(bin_folder)
    assert there >= {n.removeprefix("afltool/") for n in files_of(wheel)}
    yield f"{name}[{extras}]: installed {size:.0f} MB without .pyc in {seconds:.0f} s"
    yield f"{name}: the tutorial {used:.0f} s"
    bin_folder, seconds = environment(folder / f"{name}-sdist", str(source))
    run(bin_folder / "afltool", "--version", stdout=subprocess.DEVNULL)
    yield f"{name}: the sdist, built and installed in an empty environment in {seconds:.0f} s"
    assert modules(bin_folder) == there, "the sdist has other files than the wheel"


def begun(place: Path, work: Path) -> tuple[Path, float]:
    """An empty environment, and the first block of the README in a copy of the checkout."""
    for name in (*SOURCE, "packaging", "examples"):
        (work / name).symlink_to(ROOT / name)
    venv.create(place, with_pip=True, symlinks=True)
    return place / "bin", shell(first_block(), place / "bin", work)


def first_block() -> str:
    found = re.search(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found, "the README begins with no block of commands"
    return "set -euo pipefail\n" + found[1]


def extracted(bin_folder: Path, work: Path) -> str:
    """Features of pictures by a frozen backbone, which the Python of this script makes."""
    if not all(map(find_spec, ("torch", "timm", "onnxscript", "PIL"))):
        return "no frozen backbone was tried: it is made with afltool[demo,fast]"
    from PIL import Image

    for k in range(8):
        path = work / "scans" / "train" / str(k % 2) / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (30 * k, 9, 200 * (k % 2))).save(path)
    shell(f"{sys.executable} -m afltool {FREEZE}", Path(sys.executable).parent, work)
    seconds = shell(f"afltool {EXTRACT}", bin_folder, work)
    return f"features of 8 pictures by a frozen backbone in {seconds:.1f} s"


def files_of(wheel: Path) -> list[str]:
    return [n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("afltool/")]


def main(*names: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dist = Path(folder) / "dist"
        for which in names or TRIED:
            run(sys.executable, ROOT / "packaging" / "light" / "build.py", dist, which)
            for line in tried(which, dist, Path(folder)):
                print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
