"""Every field of every options class: another value than the default has an effect, or is refused.

An option that is accepted and dropped on the way computes something else than was asked for.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import pytest
from conftest import command_of
from helpers_images import write_imagefolder

import afltool
from afltool.cli._options import only_with
from afltool.cli.app import app
from afltool.errors import AflError, UsageError
from afltool.files.hdf5 import read_header
from afltool.heads import OPTIONS, make_head
from afltool.options import (
    ABSENT,
    ANY,
    FACTS,
    GIVEN,
    Options,
    _tell,
    checked,
    conditions,
    flag,
    refuse_unused,
)
from afltool.options.evaluation import (
    CalibrateOptions,
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
)
from afltool.options.features import (
    ConvertOptions,
    ExtractOptions,
    ImportOptions,
    ScaleOptions,
    SplitOptions,
)
from afltool.options.grammars import Part
from afltool.options.partition import PartitionOptions
from afltool.options.statistics import AggregateOptions, LocalStatsOptions, SolveOptions
from afltool.plans.config import FIELDS, HERE, PARTS, OwnOptions, RunConfig, named_fields
from afltool.plans.layout import RunFolder
from afltool.plans.plan import first_steps, last_steps, round_steps
from afltool.plans.slurm import jobs as slurm
from afltool.plans.slurm.site import Site
from afltool.rivals import METHODS, method_class
from afltool.sources.extraction.request import Asked
from afltool.values.parsed import text_form

COMMANDS = {
    "extract": ExtractOptions,
    "scale": ScaleOptions,
    "import": ImportOptions,
    "convert": ConvertOptions,
    "split": SplitOptions,
    "partition": PartitionOptions,
    "local-stats": LocalStatsOptions,
    "aggregate": AggregateOptions,
    "solve": SolveOptions,
    "evaluate": EvaluateOptions,
    "calibrate": CalibrateOptions,
    "predict": PredictOptions,
    "export": ExportOptions,
    "slurm": Site,
}
IN_RUN = [one for one in named_fields() if one[0] != HERE]  # of HERE, no result depends on it


def cases(*classes):
    return [pytest.param(cls, f, id=f"{cls.__name__}-{f.name}") for cls in classes
            for f in fields(cls) if "help" in f.metadata]  # fmt: skip


#: Texts of a grammar, where not every text is one.
OF_A_GRAMMAR = {"views": "flip", "memory": "1GB", "only": "1/3", "shard": "1/2"}


def another(f, folder=Path("/some/where")):
    """A value of the field's type, in its range, that is not its default."""
    m, kinds = f.metadata, [kind.strip() for kind in str(f.type).split("|")]
    if m["choices"]:
        return next(c for c in m["choices"] if c != f.default)
    if "bool" in kinds:
        return not f.default
    if "int" in kinds or "float" in kinds:
        low, high = m["at_least"] or m["above"] or 0, m["at_most"] or m["below"] or 10**6
        if "int" in kinds:
            wanted = (0 if f.default in (None, MISSING) else f.default) + 5
            return max(int(low), min(wanted, int(high)))
        return (low + min(high, 10)) / 2 + 0.01
    if "Path" in kinds:
        return folder / "other.csv"
    if f.name in OF_A_GRAMMAR:
        return OF_A_GRAMMAR[f.name]
    return (folder / "other",) if kinds[0].startswith("tuple") else "other"


def fulfilling(f, wanted):
    """A value of another option that meets a condition."""
    if wanted is GIVEN:
        return another(f)
    return f.default if wanted is ABSENT else wanted[0] if isinstance(wanted, tuple) else wanted


def violating(f, wanted):
    """A value of another option that does not."""
    if wanted in (GIVEN, ABSENT):
        return f.default if wanted is GIVEN else another(f)
    if isinstance(wanted, bool):
        return not wanted
    allowed = wanted if isinstance(wanted, tuple) else (wanted,)
    tried = (f.default, another(f), *f.metadata["choices"])
    return next(v for v in tried if v not in allowed)


def satisfied(cls, name):
    """The options that an option needs beside it, by what is declared; no facts of inputs."""
    known, found = {f.name: f for f in fields(cls)}, {}
    for other, wanted in conditions(cls).get(name, {}).items():
        one = other.split(ANY)[0]
        if one in known and wanted is not ABSENT:
            found |= {**satisfied(cls, one), one: fulfilling(known[one], wanted)}
    return {k: v for k, v in found.items() if v != known[k].default}


def together(cls, f, value):
    """The value with the options that it needs beside it."""
    beside = {
        "table": {"scheme": "file"},
        "column": {"scheme": "by-attribute", "table": "/some/where/table.csv"},
        "top_up": {"scheme": "dirichlet-pfl"},
        "shards_per_client": {"scheme": "shards"},
        "participation_seed": {"participation": 0.5},
        "participation_kind": {"participation": 0.5},
        "held_out": {"sum": True} if cls is LocalStatsOptions else {},
        "full_gram": {"head": "deepafl"},
        "law": {"keep_clients": True} if cls is AggregateOptions else {},
        "shard": {},
    }.get(f.name, {})
    only = {k: v for k, v in satisfied(cls, f.name).items() if k not in beside}
    return {**only, **beside, f.name: "1/2" if f.name == "shard" else value}


# ------------------------------------------------------------ used only with others


def every_class(cls=Options):
    """Every class of options that there is, heads' and rivals' too."""
    for name in METHODS:
        method_class(name)
    list(OPTIONS.values())
    for one in cls.__subclasses__():
        if one.__module__.startswith("afltool."):
            yield one
            yield from every_class(one)


CONDITIONS = [
    pytest.param(cls, name, other, wanted, id=f"{cls.__name__}-{name}-{other}")
    for cls in dict.fromkeys(every_class())
    for name, only in conditions(cls).items()
    for other, wanted in only.items()
]


def needed(cls):
    """Values of the options that a class cannot do without."""
    found = {f.name: another(f) for f in fields(cls) if f.default is MISSING}
    return {**found, **({"backbone": "resnet18", "data": "digits"} if "data" in found else {})}


@pytest.mark.parametrize(("cls", "name", "other", "wanted"), CONDITIONS)
def test_an_option_that_is_not_used_beside_others_is_refused(cls, name, other, wanted, caplog):
    known = {f.name: f for f in fields(cls)}
    given = {**needed(cls), name: another(known[name])}
    if other in FACTS:
        options = cls(**{**given, **satisfied(cls, name)})
        refuse_unused(options, {other: True})
        said = rf"{_any_of(cls, name)} is used only with {FACTS[other]}"
        if known[name].metadata["of_axes"]:
            _tell.cache_clear()
            with caplog.at_level(logging.INFO, "afltool"):
                refuse_unused(options, {other: False})
            assert re.search(said, caplog.text)
            return
        with pytest.raises(UsageError, match=said):
            refuse_unused(options, {other: False})
        return
    others = other.split(ANY)
    wrong = {one: violating(known[one], wanted) for one in others}

    def made():
        return cls(**{**given, **satisfied(cls, name), **wrong})

    if known[name].metadata["of_axes"]:  # named, and not refused
        _tell.cache_clear()
        with caplog.at_level(logging.INFO, "afltool"):
            made()
        said = caplog.text
    else:
        with pytest.raises(UsageError, match=_any_of(cls, name)) as told:
            made()
        said = str(told.value)
    assert flag(others[-1]) in said
    assert "is used only with" in said or "is not used with" in said
    right = {**given, **satisfied(cls, name)}
    assert text_form(getattr(cls(**right), name)) == given[name]


@pytest.mark.parametrize(("given", "unused"), [
    ({"identity_omega": True, "block_ridge": 2.0}, ["--block-ridge"]),
    ({"identity_omega": True, "activation": "tanh"}, []),
    ({"deepening": "cascade", "block_ridge": 2.0, "hidden_width": 8, "activation": "tanh"},
     ["--block-ridge", "--hidden-width", "--activation"]),
    ({"deepening": "activated-cascade", "activation": "tanh", "hidden_width": 8},
     ["--hidden-width"]),
    ({"layers": 0, "block_ridge": 2.0}, ["--block-ridge"]),
    ({"preset": "cifar10", "block_ridge": 2.0}, []),
    ({"deepening": "cascade"}, []),
])  # fmt: skip
def test_a_head_names_what_its_layers_do_not_use(given, unused, tmp_path, caplog):
    """Of the options that were given: others are filled in, and files hold them all."""
    _tell.cache_clear()
    with caplog.at_level(logging.INFO, "afltool"):
        made = afltool.head("deepafl", tmp_path / "h.h5", options=given)
        told = re.findall(r"(--[a-z-]+) is used only with", caplog.text)
        assert sorted(told) == sorted(unused)
        caplog.clear()
        afltool.info(made)
    assert "is used only with" not in caplog.text


def _any_of(cls, name):
    """The option, or one that it needs beside it, which may be refused first."""
    return f"({'|'.join(map(flag, [name, *satisfied(cls, name)]))})"


def own_conditions(found, path=()):
    """What options of commands that are in no class are used with: path, command, name, only."""
    for key, one in found.items():
        yield from own_conditions(getattr(one, "known", dict)(), (*path, key))
        parameters = inspect.signature(one.make()).parameters if hasattr(one, "make") else {}
        for name, only in only_with(parameters.values()).items():
            yield pytest.param((*path, key), name, only, id="-".join([*path, key, name]))


def word_of(command, name):
    """An option as somebody types it, with a value that its type takes."""
    (one,) = (p for p in command.params if flag(name) in p.opts)
    kind = one.type_descriptor.annotation
    kind = (getattr(kind, "__args__", None) or (kind,))[0]
    return [flag(name)] if one.is_flag else [flag(name), {int: "1", float: "0.5"}.get(kind, "x")]


@pytest.mark.parametrize(("path", "name", "only"), list(own_conditions(command_of(app).known())))
def test_an_option_that_a_command_does_not_use_is_refused(path, name, only, cli):
    """Before anything is read: the files here are not there."""
    command = command_of(app)
    for word in path:
        command = command.commands[word]
    line = [*path, *("x" for p in command.params if p.required and not p.opts[0].startswith("-"))]
    for p in command.params:
        if p.required and p.opts[0].startswith("-") and flag(name) not in p.opts:
            line += [p.opts[0], "x"]
    for other, wanted in only.items():
        beside = word_of(command, other) if wanted is ABSENT else []
        done = cli(*line, *word_of(command, name), *beside)
        assert done.exit_code == 2, done.stderr
        assert flag(name) in done.stderr
        assert flag(other.split(ANY)[-1]) in done.stderr


@pytest.mark.parametrize(("line", "said"), [
    (["import", "{embeddings}", "--dtype", "float32", "--fraction-bits", 3],
     "--fraction-bits is used only with --dtype int16; found float32"),
    (["export", "{head}", "--seed", 3, "--weights", "random"],
     "--weights is used only with --with-backbone"),
    (["export", "{head}", "--weights", "IMAGENET1K_V1"], "is used only with --with-backbone"),
    (["predict", "{head}", "{test}", "--weights", "random"],
     "--weights is used only with images as inputs, and there is none here"),
    (["predict", "{head}", "{test}", "--path-column", "file"],
     "--path-column is used only with a table of images as input"),
    (["run", "--data", "digits", "--backbone", "resnet18", "--weights-seed", 3],
     "--weights-seed is used only with --weights random; found default"),
    (["extract", "--data", "digits", "--backbone", "resnet18", "--seed", 3],
     "--seed is used only with --weights random"),
])  # fmt: skip
def test_what_was_dropped_in_silence_is_refused(line, said, road, tmp_path, cli):
    words = [str(word).format(**vars(road)) for word in line]
    done = cli(*words, "-o", tmp_path / ("o.csv" if "predict" in line else "o.onnx"))
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_an_axis_that_some_cells_do_not_use_is_named(caplog):
    """So a study may have it for all of its cells."""
    _tell.cache_clear()
    with caplog.at_level(logging.INFO, "afltool"):
        RunConfig(data="digits", backbone="resnet18", participation_kind="inconsistent")
    assert "--participation-kind is used only with --participation" in caplog.text


# ------------------------------------------------------------ an effect, or a message

CHECKS = {  # they refuse or allow, and change no result
    "complete", "allow_repeats", "min_rows", "max_rows", "again",
}  # fmt: skip


@pytest.fixture(scope="module")
def noisy(road, tmp_path_factory):
    """Test features with some wrong labels, so that bootstrap samples differ, and their counts."""
    at = tmp_path_factory.mktemp("noisy")
    with np.load(road.folder / "test.npz") as given:
        y = np.where(np.arange(len(given["y"])) % 5 == 0, (given["y"] + 1) % 4, given["y"])
        np.savez(at / "x.npz", x=given["x"], y=y)
    made = afltool.import_embeddings(at / "x.npz", at / "x.h5")
    afltool.counts(road.head, made, at, client="counts")
    return made


def stages(road, noisy):
    """How each stage is called by functions: options class, call, and combinations of options."""
    stats = {"partition": road.clients, "head_options": {"ridge": 1.0}}
    counts = noisy.with_name("client-counts.h5")
    return {
        "scale": (ScaleOptions, lambda out, **o: afltool.scale(
            road.embeddings, out, **o), [{}]),
        "import": (ImportOptions, lambda out, **o: afltool.import_embeddings(
            road.embeddings, out / "o.h5", **o), [{}, {"dtype": "float32"}, {"unlabelled": True}]),
        "convert": (ConvertOptions, lambda out, **o: afltool.convert(
            road.train, out / "o.h5", **o), [{"fraction_bits": 8}, {"dtype": "float32"}]),
        "split": (SplitOptions, lambda out, **o: afltool.split(road.train, out, **o), [{}]),
        "partition": (PartitionOptions, lambda out, **o: afltool.partition(
            road.train, out / "o.h5", **o), [
                {"scheme": "iid", "clients": 3}, {"clients": 3, "alpha": 1.0},
                {"scheme": "shards", "clients": 3, "shards_per_client": 2},
                {"scheme": "dirichlet-pfl", "clients": 3, "alpha": 1.0, "min_size": 5},
                {"scheme": "pathological-pfl", "clients": 3}]),
        "local-stats": (LocalStatsOptions, lambda out, **o: afltool.local_stats(
            road.train, "linear", out / "o", **o), [{**stats}, {**stats, "sum": True},
                {"client": "a"}]),
        "aggregate": (AggregateOptions, lambda out, **o: afltool.aggregate(
            [road.stats], out / "o.h5", **o), [{}, {"law": "pairwise"}]),
        "solve": (SolveOptions, lambda out, **o: afltool.solve(
            road.total, out / "o.h5", **o), [{}]),
        "evaluate": (EvaluateOptions, lambda out, **o: afltool.evaluate(
            road.head, noisy, **o), [{}, {"metrics": "accuracy"}, {"each_round": True}]),
        "calibrate": (CalibrateOptions, lambda out, **o: afltool.calibrate(
            road.head, counts, out / "o.h5", **o), [{}]),
        "predict": (PredictOptions, lambda out, **o: afltool.predict(
            road.head, road.test, out / "o.csv", **o), [{}, {"scores": True}]),
        "export": (ExportOptions, lambda out, **o: afltool.export(
            road.head, out / "o.onnx", **o), [{}]),
    }  # fmt: skip


COMBINATIONS = [
    pytest.param(name, number, f, id=f"{name}-{number}-{f.name}")
    for name, count in (("scale", 1), ("import", 3), ("convert", 2), ("split", 1), ("partition", 5),
                        ("local-stats", 3), ("aggregate", 2), ("solve", 1), ("evaluate", 3),
                        ("calibrate", 1), ("predict", 2), ("export", 1))
    for number in range(count)
    for f in fields(COMMANDS[name])
    if f.metadata["in_result"] and f.name not in CHECKS
]  # fmt: skip


@pytest.fixture(scope="module")
def outcomes():
    """What a stage did without the option, by the combination of the others."""
    return {}


def outcome(call, out, caplog, **options):
    """What a stage does: its result, or why not; what it writes, and what it says."""
    caplog.clear()
    out.mkdir()
    try:
        result = call(out, **options)
    except (AflError, OSError) as error:
        return f"{type(error).__name__}: {error}", None
    files = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        header = dict(read_header(path)) if path.suffix == ".h5" else {}
        header.pop("provenance", None)
        files[str(path.relative_to(out))] = header or path.read_bytes()
    result = result if isinstance(result, dict) else None
    said = re.sub(r"[\d.]+ s\b", "", caplog.text).replace(str(out), "")
    return None, (files, json.loads(json.dumps(result).replace(str(out), "")), said)


@pytest.mark.parametrize(("name", "number", "f"), COMBINATIONS)
def test_every_option_has_an_effect_in_every_combination_or_is_refused(
    name, number, f, road, noisy, outcomes, tmp_path, caplog
):
    cls, call, combinations = stages(road, noisy)[name]
    beside = combinations[number]
    known = {one.name: one for one in fields(cls)}
    if f.name in beside:
        return
    value = {
        "table": road.folder / "none.csv", "views": "flip", "y": "y", "x": "x",
        "group": "none.csv:site", "by": "none.csv:site", "metrics": "balanced-accuracy",
        "positive": "1", "seed": 5, "samples": 50,
        "held_out": tmp_path / "b" / "held.h5", "errors": tmp_path / "b" / "wrong.csv",
        "card": tmp_path / "b" / "card.md",
    }.get(f.name, another(known[f.name]))  # fmt: skip
    if (name, number) not in outcomes:
        outcomes[name, number] = outcome(call, tmp_path / "a", caplog, **beside)
    plain = outcomes[name, number]
    assert plain[0] is None, plain
    why, did = outcome(call, tmp_path / "b", caplog, **{**beside, f.name: value})
    if f.metadata["of_axes"]:
        return  # a message, which is said once: see above
    if why is not None:
        assert flag(f.name) in why or str(value) in why or "none.csv" in why or "other" in why, why
    else:
        assert did != plain[1], f"{flag(f.name)} {value} changes nothing beside {beside}"


# ------------------------------------------------------------ the command


@pytest.mark.parametrize(("cls", "f"), cases(*COMMANDS.values()))
def test_the_command_has_the_option_with_its_help_and_hands_it_on(cls, f):
    name = next(name for name, one in COMMANDS.items() if one is cls)
    command = command_of(app).commands[name]
    flag = "--" + f.name.replace("_", "-")
    found = [p for p in command.params if flag in p.opts]
    assert len(found) == 1, flag
    assert f.metadata["help"] in found[0].help


def test_every_default_is_what_a_check_of_it_gives():
    """So a value that is the default needs none."""
    settings = [method_class(name).settings_class for name in METHODS]
    for cls in (*COMMANDS.values(), *OPTIONS.values(), *settings, OwnOptions):
        for f in fields(cls):
            if "help" in f.metadata and f.default is not MISSING:
                found = checked(f, f.default)
                assert (found, type(found)) == (f.default, type(f.default)), (cls, f.name)


# ------------------------------------------------------------ run


def steps_of(config, folder):
    """Every step of a run of one round, with its options and what it is made of."""
    run, head = RunFolder(folder), folder / "head0.h5"
    rounds = round_steps(config, run, 1, head, held_out=False)
    return [*first_steps(config, run), *rounds, *last_steps(config, run, [head])]


def run_with(name, part, f, value):
    images = {"data": "digits", "backbone": "resnet18"}
    cls, names = PARTS[part]
    more = {names.get(k, k): v for k, v in together(cls, f, value).items()}
    if name in ("train_features", "test_features"):
        return RunConfig(train_features=value, test_features=value)
    return RunConfig(**{**images, **more})


@pytest.mark.parametrize(("part", "name", "f"), IN_RUN, ids=[name for _, name, _ in IN_RUN])
def test_a_run_hands_the_option_to_its_stage_and_keeps_it(part, name, f, tmp_path):
    head = {"head": "deepafl"} if name == "full_gram" else {}
    kept = {"keep_clients": True} if name == "law" else {}
    before = RunConfig(data="digits", backbone="resnet18", **head, **kept)
    after = run_with(name, part, f, another(f))
    plain, told = steps_of(before, tmp_path), steps_of(after, tmp_path)
    if name == "keep_clients":
        assert [step.options.sum for step in (*plain, *told) if step.name == "local-stats"] == [
            True, False,
        ]  # fmt: skip
    assert told != plain, f"{name} changes no step of a run"
    assert RunConfig(**after.given()) == after
    path = tmp_path / "run.toml"
    path.write_text(after.to_toml())
    from afltool.plans.config import read_config

    assert RunConfig(**read_config(path)) == after


def test_names_of_a_run_are_said_once():
    """Two options of one name, or one of a head's name, would be lost."""
    names = [name for _, name, _ in named_fields()]
    assert len(set(names)) == len(names)
    theirs = {f.name for cls in OPTIONS.values() for f in fields(cls)} - {"seed"}
    assert not theirs & set(names)


# ------------------------------------------------------------ Slurm


def texts_of(config, site=None):
    return slurm.script_texts(config, site or Site(), Path("/scratch/run"))


@pytest.fixture
def files(road, tmp_path, monkeypatch):
    """Files that exist where an option names one."""
    table = tmp_path / "other.csv"
    table.write_text("row,client,other\n" + "".join(f"r{i},c{i % 3},{i}\n" for i in range(200)))
    monkeypatch.chdir(tmp_path)
    given = {"data": "cifar100", "partition": road.clients, "head": str(road.head0), "table": table,
             "backbone": "resnet34", "weights": "random", "node": "layer3",
             "cache": tmp_path / "cache"}  # fmt: skip
    return {**given, "column": "other", "train_features": road.train, "test_features": road.test}


@pytest.mark.parametrize(("part", "name", "f"), IN_RUN, ids=[name for _, name, _ in IN_RUN])
def test_the_scripts_say_the_option_or_it_is_refused(part, name, f, files, tmp_path):
    config = run_with(name, part, f, files.get(name, another(f, tmp_path)))
    if name == "column":
        config = RunConfig(
            data="digits", backbone="resnet18", scheme="by-attribute", table=files["table"],
            column="other",
        )  # fmt: skip
    plain = texts_of(RunConfig(data="digits", backbone="resnet18"))
    if name == "participation_kind":  # of heads with two sums a layer
        beside = {"data": "digits", "backbone": "resnet18", "head": "deepafl", "participation": 0.5}
        config, plain = RunConfig(**beside, **{name: another(f)}), texts_of(RunConfig(**beside))
    if name in ("store", "head_seed"):  # of `run` alone; of heads that draw something
        with pytest.raises(UsageError, match=name.replace("_", "-")):
            texts_of(config)
    elif name == "full_gram":  # in the head's file, which all jobs read
        full, thin = config, RunConfig(data="digits", backbone="resnet18", head="deepafl")
        assert thin.all_head_options() == full.all_head_options() | {"incremental": True}
    else:
        assert texts_of(config) != plain, f"{name} is lost on the way to the scripts"


@pytest.mark.parametrize(("cls", "f"), cases(Site))
def test_what_a_site_says_is_in_the_scripts_or_refused(cls, f):
    value = {"time": "02:00:00", "memory": "7G", "max_array": 1}.get(f.name, another(f))
    run = RunConfig(data="digits", backbone="resnet18", clients=2000)
    if f.name == "max_array":
        with pytest.raises(UsageError, match="--max-array"):
            texts_of(run, Site(max_array=1))
    else:
        assert texts_of(run, Site(**{f.name: value})) != texts_of(run)


def test_the_memory_of_a_run_is_not_that_of_a_job():
    with pytest.raises(UsageError, match="slurm --memory 4G"):
        texts_of(RunConfig(data="digits", backbone="resnet18", memory="8GB"))


# ------------------------------------------------------------ recipes


def asked(folder, **more):
    data = {"data": f"imagefolder:{folder}", "backbone": "resnet18", "weights": "random"}
    options = ExtractOptions(**{**data, "image_size": 32, **more})
    return Asked(options, Part(1, 2)) if options.shard else Asked(options)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    write_imagefolder(folder / "a", per_class=4)
    write_imagefolder(folder / "b", per_class=3)
    names = sorted((p.name for p in (folder / "a" / "train").iterdir()), reverse=True)
    (folder / "classes.txt").write_text("\n".join(names))
    return folder


# Those of tables alone; see test_datasets.
ALONE = {"path_column", "label_column"}
EXTRACT = [f for f in fields(ExtractOptions) if f.name not in ALONE]


@pytest.mark.parametrize("f", EXTRACT, ids=lambda f: f.name)
def test_the_recipe_of_features_says_what_decides_them_and_nothing_else(f, images):
    special = {
        "backbone": "resnet34", "data": f"imagefolder:{images / 'b'}", "weights": "default",
        "classes": images / "classes.txt", "limit": 5, "image_size": 48, "node": "layer3",
        "dtype": "float32", "data_root": images, "store": images, "device": "cpu",
    }  # fmt: skip
    more = together(ExtractOptions, f, special.get(f.name, another(f)))
    changed = asked(images / "a", **more).recipe() != asked(images / "a").recipe()
    assert changed == f.metadata["in_result"], f.name


def test_the_recipe_of_a_partition_has_every_option(road, tmp_path):
    ids = afltool.info(road.clients)
    table = tmp_path / "other.csv"
    afltool.stages.partition.export(road.clients, table)
    base = {"scheme": "dirichlet", "clients": 4, "alpha": 1.0}
    assert ids
    seen = {}
    for f in fields(PartitionOptions):
        special = {"table": table, "column": "label", "min_size": 1, "clients": 5}
        value = special.get(f.name, another(f))
        more = together(PartitionOptions, f, value)
        needs = {
            "dirichlet": base, "dirichlet-pfl": {**base, "min_size": 1},
            "shards": {"clients": 4, "shards_per_client": 2}, "file": {"table": table},
            "by-attribute": {"table": table, "column": "label"}, "iid": {"clients": 4},
        }  # fmt: skip
        options = {**needs[more.get("scheme", "dirichlet")], **more}
        if f.name in ("table", "column"):
            options["table"] = table
        path = afltool.partition(road.train, tmp_path / f"{f.name}.h5", **options)
        recipe = read_header(path)["recipe"]
        assert f.name in {**recipe["options"], **recipe["inputs"]}, f.name
        seen[f.name] = recipe["options"]
    assert len(seen) == len(fields(PartitionOptions))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_a_head_is_in_its_head_or_refused(name):
    plain = make_head(name).options.as_dict()
    for f in fields(OPTIONS[name]):
        with suppress(UsageError):
            head = make_head(name, {f.name: another(f)})
            assert head.options.as_dict() != plain, f"{f.name} changes nothing"


def test_another_value_is_one():
    """The premise of all tests here."""
    for cls in (*COMMANDS.values(), OwnOptions):
        for f in fields(cls):
            if "help" in f.metadata:
                value = another(f)
                assert value != f.default
                assert not (isinstance(value, float) and np.isnan(value))
    assert set(FIELDS) >= {"node", "each_round", "table", "column", "top_up"}
