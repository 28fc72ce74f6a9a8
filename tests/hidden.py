"""Commands in a process that lacks what other systems lack: packages, modules, functions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# What is hidden looks as if it had never been there; `prepare` is run before afltool is loaded.
RUN = """
import importlib, json, sys
from importlib.machinery import BuiltinImporter, PathFinder

import psutil  # that of another system needs nothing of what is hidden

modules, names, commands, prepare = json.loads(sys.argv[1])

def without(finder):
    class Without(finder):
        @classmethod
        def find_spec(cls, name, *where):
            return None if name.split(".")[0] in modules else super().find_spec(name, *where)
    return Without

for finder in (BuiltinImporter, PathFinder):
    sys.meta_path[sys.meta_path.index(finder)] = without(finder)
exec(prepare)
for name in modules:
    sys.modules.pop(name, None)
for name in names:
    module, _, attribute = name.partition(".")
    vars(importlib.import_module(module)).pop(attribute, None)

from afltool.cli import main

for words in commands:
    sys.argv = ["afltool", *words]
    try:
        main()
    except SystemExit as ended:
        print("ended", json.dumps([words, ended.code or 0]))
    sys.stdout.flush()
"""


def without(modules, *commands, names=(), prepare="", folder=None):
    """Run commands one after the other; their exit codes, and the finished process.

    ``modules``: top-level names that cannot be imported; ``names``: MODULE.NAME that is not there.
    """
    lines = [[str(word) for word in line] for line in commands]
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([*map(list, (modules, names)), lines, prepare])],
        capture_output=True, text=True, check=False, cwd=folder or Path.cwd(),
    )  # fmt: skip
    said = [x.removeprefix("ended ") for x in done.stdout.splitlines() if x[:6] == "ended "]
    return [json.loads(line)[1] for line in said], done
