"""Every option of a command with other values than its default, and what the command does then.

Which options there are is asked of the commands; nobody keeps a list. A new option needs a word in
`WORDS` if neither a number nor any text will do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conftest import command_of

import afltool
from afltool.cli.app import OWN, app

#: How the work is done: no file depends on it.
EXECUTION_ONLY = {
    "data-root", "device", "memory", "store", "threads",
}  # fmt: skip
#: They refuse or allow; what is made is the same.
REFUSES = {"allow-constant", "allow-repeats", "complete", "min-rows", "skip-corrupt"}
#: Of studies, of whose cells some do not use them: where one is not used, this is said only once.
AXES = {
    "each-round", "full-gram", "memory", "participation-kind",
    "participation-seed",
}  # fmt: skip
#: Of every command, not of its stage.
SHARED = {"out", "overwrite", "json", "help", "help-all", "track"}

#: Words where neither a number nor any text will do: choices, names, and texts with a grammar.
WORDS = {
    "activation": "relu", "backbone": "resnet34", "bias": "first", "bucketing": "onehot",
    "categories": "site=a", "feature-columns": "age",
    "card": "NEW.md", "classes": "CLASSES", "column": "client", "compute": "float32 float64",
    "confusion": "NEW.csv", "data": "imagefolder:IMAGES", "deepening": "cascade", "device": "cpu",
    "dtype": "float32", "engine": "openvino", "errors": "NEW.csv", "export": "NEW.csv",
    "features": "random", "fixed-bits": "8", "group": "TABLE:site", "group-by": "TABLE:site",
    "head": "HEAD", "held-out": "NEW.h5 0.5", "law": "pairwise", "resample-by": "TABLE:site",
    "limit": "2", "memory": "1GB", "method": "isotonic", "metrics": "balanced-accuracy",
    "missing": "mean",
    "node": "layer3", "only": "0-1", "participation-kind": "inconsistent",
    "phi0-activation": "relu", "precision": "bf16", "preprocess": "paper",
    "preset": "paper", "rounds": "NEW.csv 3", "rule": "fedcgs",
    "scheme": "iid", "shard": "1/2", "split": "test", "table": "OTHER", "views": "flip",
    "thresholds": "range:0:1", "weights": "IMAGENET1K_V1",
}  # fmt: skip
ANY = "5 0.5 other"


@cache  # a command is built anew each time it is asked for
def command(*path: str) -> Any:
    """What Typer makes of a command."""
    found = command_of(app)
    for word in path:
        found = found.get_command(None, word)
    return found


def options(*path: str) -> dict[str, Any]:
    """The options of a command by their long names without dashes, but for the shared ones."""
    every = {max(p.opts, key=len): p for p in command(*path).params if p.opts[0].startswith("-")}
    named = {flag.removeprefix("--"): p for flag, p in every.items()}
    return {name: p for name, p in named.items() if name not in SHARED}


def of_heads() -> dict[str, dict[str, Any]]:
    """The options of each head, by name."""
    heads = command("head").list_commands(None)
    return {name: options("head", name) for name in heads}


def run_options(name: str, *words: str) -> dict[str, Any]:
    """The options of a run that a command line gives, of the command `run` or `slurm`."""
    typed = OWN[name].build(name, words).make_context(name, [*words, "-o", "R"]).params
    taken = {k.partition("__")[2]: v for k, v in typed.items() if k.startswith("options__")}
    return {k: v for k, v in taken.items() if v not in (None, [], ())}


def values(name: str, parameter: Any, files: Path) -> list[str]:
    """What may be given for an option, of files in ``files``: one is of its type, no default."""
    if parameter.is_flag:
        return [""]
    word = WORDS.get(name, ANY)
    places = {
        "TABLE": files / "table.csv", "OTHER": files / "other.csv",
        "CLASSES": files / "classes.txt", "HEAD": files / "head.h5", "NEW": "OUT/new",
        "IMAGES": files / "more",
    }  # fmt: skip
    for key, path in places.items():
        word = word.replace(key, str(path))
    return word.split()


@dataclass(frozen=True)
class Outcome:
    """What a command did; of a file of afltool digest and recipe, of another its text."""

    code: int
    said: str
    printed: str
    files: dict[str, Any]

    def of_files(self, fact: str) -> dict[str, Any]:
        return {k: v[fact] for k, v in self.files.items() if isinstance(v, dict)}

    @property
    def content(self) -> Any:
        """All but recipes and messages."""
        whole = {k: v["digest"] if isinstance(v, dict) else v for k, v in self.files.items()}
        return self.printed, whole


def outcome(cli: Callable[..., Any], words: list[str], out: Path) -> Outcome:
    """Of a command that writes into the folder ``out`` alone; what it is called does not count."""
    done = cli(*words)
    files: dict[str, Any] = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        name = str(path.relative_to(out))
        if path.suffix == ".h5":
            facts = afltool.info(path)
            files[name] = {"digest": facts["digest"], "recipe": facts["recipe"]}
        elif path.name not in ("run.toml", "summary.json"):  # what was given; how long it took
            files[name] = re.sub(rf"{out.parent}/[\w-]+", "", path.read_bytes().decode("latin-1"))
    said, printed = (
        re.sub(rf"\b[\d.]+ s\b|{out.parent}/[\w-]+", "", text)
        for text in (done.stderr, done.stdout)
    )
    return Outcome(done.exit_code, said, printed, files)


def faults(option: str, value: str, plain: Outcome, did: Outcome) -> Iterator[str]:
    """What is wrong with an option that made ``did`` of ``plain``."""
    if did.code:
        if not any(word in did.said for word in (f"--{option}", "use --overwrite", value)):
            yield f"is refused without its name: {did.said}"
        return
    before, after = plain.of_files("recipe"), did.of_files("recipe")
    same = plain.content == did.content and before == after
    if option in EXECUTION_ONLY | REFUSES:
        if not same:
            yield "changes the result"
        return
    was, is_now = plain.of_files("digest"), did.of_files("digest")
    for name in before.keys() & after.keys():
        if before[name] == after[name] and was[name] != is_now[name]:
            yield f"makes another {name} with the same recipe"
    if same and option not in AXES:
        yield "changes nothing"


def is_taken(option: str, value: str, did: Outcome) -> bool:
    """Whether a value was of the option's type, even if it is refused beside others."""
    refused = rf"--{option} (is|should) [^;]*; found '?{value}|value for '--{option}'"
    return not (did.code == 2 and re.search(refused, did.said)) or "is used only" in did.said
