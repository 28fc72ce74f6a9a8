"""Every option of every command: it has an effect in every combination, or is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import typer
from helpers_images import write_imagefolder
from option_matrix import (
    AXES,
    EXECUTION_ONLY,
    REFUSES,
    faults,
    is_taken,
    of_heads,
    options,
    outcome,
    run_options,
    values,
)

import afltool
from afltool.errors import UsageError
from afltool.runs.config import FIELDS
from afltool.runs.folder import RunFolder
from afltool.runs.plan import next_steps

#: Commands with options that decide what the others do; {…} is a file. One that begins with a plus
#: is given once more for the same output, which is refused if the recipe is another one.
COMBINATIONS = {
    "extract": ["+extract {images} -o OUT/o.h5"],
    "scale": ["scale {embeddings} -o OUT"],
    "import": [
        "import {embeddings} -o OUT/o.h5",
        "import {embeddings} -o OUT/o.h5 --dtype float32",
        "import {embeddings} -o OUT/o.h5 --unlabeled",
    ],
    "convert": [
        "convert {train} -o OUT/o.h5",
        "convert {train} -o OUT/o.h5 --fraction-bits 8",
        "convert {train} -o OUT/o.h5 --dtype float32",
    ],
    "split": ["split {train} -o OUT"],
    "partition": [
        "partition {train} -o OUT/o.h5 --scheme iid --clients 3",
        "partition {train} -o OUT/o.h5 --clients 6 --alpha 0.1",
        "partition {train} -o OUT/o.h5 --scheme shards --clients 3 --shards-per-client 2",
        "partition {train} -o OUT/o.h5 --scheme dirichlet-pfl --clients 3 --alpha 1 --min-size 5",
        "partition {train} -o OUT/o.h5 --scheme pathological-pfl --clients 6",
        "partition {train} -o OUT/o.h5 --scheme by-attribute --column site --table {table}",
    ],
    "local-stats": [
        "local-stats {train} -o OUT/o --partition {clients} --head linear --ridge 1",
        "local-stats {train} -o OUT/o.h5 --partition {clients} --head linear --ridge 1 --sum",
        "local-stats {train} -o OUT/o --client a --head linear --ridge 1",
        "local-stats {train} -o OUT/o --partition {clients} --head linear --participation 0.5",
    ],
    "aggregate": ["aggregate {stats} -o OUT/o.h5", "aggregate {stats} -o OUT/o.h5 --law pairwise"],
    "solve": ["solve {total} -o OUT/o.h5", "solve {with_gamma} -o OUT/o.h5"],
    "evaluate": [
        "evaluate {head} {noisy}",
        "evaluate {head} {noisy} --metrics accuracy",
        "evaluate {head} {noisy} --counts --client a -o OUT/o",
    ],
    "calibrate": ["calibrate {head} {counts} -o OUT/o.h5"],
    "predict": [
        "predict {head} {test} -o OUT/o.csv",
        "predict {head} {test} -o OUT/o.csv --scores",
    ],
    "export": ["export {head} -o OUT/o.onnx"],
}
COMBINATIONS |= {f"head {name}": [f"head {name} -o OUT/o.h5"] for name in of_heads()}
COMBINATIONS["head discriminant"].append("head discriminant --rule fed3r -o OUT/o.h5")
COMBINATIONS["head deepafl"].append("head deepafl --deepening cascade -o OUT/o.h5")
#: Commands of which the options of heads are tried, too.
SOLVING = ("solve", "head")


@pytest.fixture(scope="session")
def files(road, tmp_path_factory):
    """The files of `road`, others that options name, and noisy test features with their counts."""
    at = tmp_path_factory.mktemp("inputs")
    rows = "".join(f"row/{i:03},s{i % 3},c{i % 7}\n" for i in range(600))
    (at / "table.csv").write_text(f"row,site,client\n{rows}")
    (at / "other.csv").write_text(f"row,client,site\n{rows}")
    (at / "classes.txt").write_text("line\nsquare\nd\ncircle\n")
    with np.load(road.embeddings) as given:
        y = np.where(np.arange(600) % 5 == 0, (given["y"] + 1) % 4, given["y"])
        np.savez(at / "noisy.npz", x=given["x"], y=y)
    noisy = afltool.import_embeddings(at / "noisy.npz", at / "noisy.h5")
    afltool.head("linear", at / "head.h5", head_options={"gamma": 0.5})
    images = write_imagefolder(at / "images", per_class=1)
    write_imagefolder(at / "more", per_class=2)
    gamma = {"head_options": {"gamma": 2.0}, "partition": road.clients, "sum": True}
    return {
        **vars(road),
        "folder": at,
        "noisy": noisy,
        "table": at / "table.csv",
        "counts": afltool.counts(road.head, noisy, at, client="counts"),
        "with_gamma": afltool.local_stats(road.train, "linear", at / "gamma.h5", **gamma),
        "images": f"--data imagefolder:{images} --backbone timm:test_resnet --weights random "
        "--image-size 32 --engine torch",
    }


# A network is exported in seconds; all else is quick.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "export")) for n in COMBINATIONS]
)
def test_every_option_has_an_effect_in_every_combination_or_is_refused(
    name, files, tmp_path, cli, monkeypatch
):
    def at(out, line, *more):
        """What a command does whose files are all written into ``out``."""
        out.mkdir(exist_ok=True)  # or the copy of a finished one
        monkeypatch.chdir(out)
        return outcome(cli, [word.replace("OUT", str(out)) for word in (*line.split(), *more)], out)

    path, heads = name.split(), {k for every in of_heads().values() for k in every}
    tried = {k: p for k, p in options(*path).items() if k not in heads or path[0] in SOLVING}
    found = []
    for number, line in enumerate(COMBINATIONS[name]):
        given, again = line.removeprefix("+").format(**files), line[0] == "+"
        plain = at(tmp_path / f"{number}", given)
        assert plain.code == 0, plain.said
        for option, parameter in tried.items():
            if f" --{option} " in f" {given} " and "images" not in line:
                continue
            taken, effective, wrong = parameter.is_flag, False, []
            for i, value in enumerate(values(option, parameter, files["folder"])):
                out = tmp_path / f"{number}-{option}-{i}"
                if again:
                    shutil.copytree(tmp_path / f"{number}", out)
                did = at(out, given, f"--{option}", *value.split())
                one = [*faults(option, value, plain, did)]
                wrong += one
                effective |= not one and not did.code
                taken |= is_taken(option, value, did)
            if effective:  # another value may have been the default
                wrong = [one for one in wrong if one != "changes nothing"]
            found += [f"{line} --{option} {one}" for one in wrong]
            if not taken:
                found.append(f"{line} --{option}: none of its type; see WORDS")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("given", [
    "--train-features={train} --test-features={test}",
    "--train-features={train} --test-features={test} --head=deepafl --layers=2 --participation=0.5",
    "--data=imagefolder:{folder}/images --backbone=timm:test_resnet --weights=random",
])  # fmt: skip
def test_every_option_of_a_run_is_in_its_steps_or_is_refused(given, files):
    """What the steps do with it, their own commands show."""
    given = f"{given} --clients=6".format(**files)

    def steps_of(*words):
        config = afltool.RunConfig(**run_options("run", *words))
        every = next_steps(config, RunFolder(Path("R")), lambda head: None)
        given = config.given_options().items()
        of_result = {k: v for k, v in given if k not in FIELDS or FIELDS[k].in_result}
        return [step.line() for steps in every for step in steps], of_result

    plain, wrong = steps_of(*given.split()), []
    heads = {k for every in of_heads().values() for k in every}
    for option, parameter in options("run").items():
        if option in heads | {"step", "part", "join"} or f"--{option}=" in given:
            continue
        for value in values(option, parameter, files["folder"]):
            word = f"--{option}" if parameter.is_flag else f"--{option}={value}"
            try:
                found = steps_of(*given.split(), word)
            except typer.BadParameter:
                continue
            except UsageError as error:
                wrong += [(word, error)] if option.split("-")[-1] not in str(error) else []
                continue
            if option in EXECUTION_ONLY | REFUSES - {"skip-corrupt"}:
                wrong += [(word, "changes the result")] if found[1] != plain[1] else []
            elif found == plain and option not in AXES:
                wrong.append((word, "changes nothing"))
    assert not wrong, "\n".join(map(str, wrong))
