"""Every field of every options class: another value than the default has an effect, or is refused.

An option that is accepted and dropped on the way computes something else than was asked for.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import pytest
from conftest import command_of
from helpers_images import write_imagefolder

import afltool
from afltool.baselines import METHODS, method_class
from afltool.cli.app import app
from afltool.engines import slurm
from afltool.engines.site import Site
from afltool.errors import UsageError
from afltool.extraction.asked import Asked
from afltool.heads import OPTIONS, make_head
from afltool.options import checked
from afltool.options.features import ConvertOptions, ExtractOptions, ImportOptions, SplitOptions
from afltool.options.partition import PartitionOptions
from afltool.options.solving import (
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
    SolveOptions,
)
from afltool.options.statistics import AggregateOptions, LocalStatsOptions
from afltool.runs import pipeline
from afltool.runs.config import FIELDS, HERE, PARTS, OwnOptions, RunConfig, named_fields
from afltool.runs.layout import RunFolder
from afltool.store.hdf5 import read_header

COMMANDS = {
    "extract": ExtractOptions,
    "import": ImportOptions,
    "convert": ConvertOptions,
    "split": SplitOptions,
    "partition": PartitionOptions,
    "local-stats": LocalStatsOptions,
    "aggregate": AggregateOptions,
    "solve": SolveOptions,
    "evaluate": EvaluateOptions,
    "predict": PredictOptions,
    "export": ExportOptions,
    "slurm": Site,
}
IN_RUN = [one for one in named_fields() if one[0] != HERE]  # of HERE, no result depends on it


def cases(*classes):
    return [pytest.param(cls, f, id=f"{cls.__name__}-{f.name}") for cls in classes
            for f in fields(cls) if "help" in f.metadata]  # fmt: skip


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
    if f.name == "views":  # a text of its own grammar
        return "flip"
    return (folder / "other",) if kinds[0].startswith("tuple") else "other"


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
    return {**beside, f.name: "1/2" if f.name == "shard" else value}


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


@pytest.fixture
def called(monkeypatch):
    """What each stage of a run was called with, and none of them does anything."""
    seen = {}

    def stand_in(name):
        def stage(*args, **options):
            seen[name] = options
            return {"head": {}, "features": {}} if name == "evaluate" else Path("made.h5")

        return stage

    for name in ("extract", "partition", "local_stats", "solve", "evaluate", "make_head_file"):
        monkeypatch.setattr(pipeline, name, stand_in(name))
    for name in ("link_file", "aggregate"):
        monkeypatch.setattr(
            pipeline,
            name,
            lambda *args, **options: seen.update({str(args[-1]): [args, options]}) or Path("x"),
        )
    for name in ("extract_key", "partition_key", "head_key", "metrics_key"):
        monkeypatch.setattr(pipeline, name, lambda *_: [])  # of files that are not there
    return seen


def calls_of(config, called, folder):
    """Everything that a run would call, with its options."""
    called.clear()
    run = pipeline._Run(config, RunFolder(folder), False, pipeline.Alone())
    run.features("train") if config.extract is None else run.extract("train")
    run.partition(folder / "train.h5")
    head = run.first_head()
    run.gather(folder / "train.h5", folder / "c.h5", head, 1, None)
    run.solve(folder / "t.h5", None, head, 1)
    run.evaluated([folder / "h.h5"], folder / "test.h5")
    return json.loads(json.dumps({**called, "head": str(head)}, default=str))


def run_with(name, part, f, value):
    images = {"data": "digits", "backbone": "resnet18"}
    cls, names = PARTS[part]
    more = {names.get(k, k): v for k, v in together(cls, f, value).items()}
    if name in ("train_features", "test_features"):
        return RunConfig(train_features=value, test_features=value)
    return RunConfig(**{**images, **more})


@pytest.mark.parametrize(("part", "name", "f"), IN_RUN, ids=[name for _, name, _ in IN_RUN])
def test_a_run_hands_the_option_to_its_stage_and_keeps_it(part, name, f, called, tmp_path):
    head = {"head": "deepafl"} if name == "full_gram" else {}
    kept = {"keep_clients": True} if name == "law" else {}
    before = RunConfig(data="digits", backbone="resnet18", **head, **kept)
    after = run_with(name, part, f, another(f))
    plain = calls_of(before, called, tmp_path)
    told = calls_of(after, called, tmp_path)
    if name == "keep_clients":
        assert plain["local_stats"]["sum"]
        assert "sum" not in told["local_stats"] or not told["local_stats"]["sum"]
    assert told != plain, f"{name} changes nothing that run calls"
    assert RunConfig(**after.given()) == after
    path = tmp_path / "run.toml"
    path.write_text(after.to_toml())
    from afltool.runs.config import read_config

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
    sums = tmp_path / "md5"
    sums.write_text(f"{'0' * 32}  cifar-100-python.tar.gz\n")
    given = {"data": "cifar100", "partition": road.clients, "head": str(road.head0), "table": table,
             "backbone": "resnet34", "weights": "random", "node": "layer3", "checksums": sums,
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
    return Asked(options, 1, 2) if options.shard else Asked(options)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    write_imagefolder(folder / "a", per_class=4)
    write_imagefolder(folder / "b", per_class=3)
    names = sorted((p.name for p in (folder / "a" / "train").iterdir()), reverse=True)
    (folder / "classes.txt").write_text("\n".join(names))
    return folder


# Those of downloads and of tables alone; see test_datasets.
ALONE = {"checksums", "path_column", "label_column"}
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
    assert set(FIELDS) >= {"node", "each_round", "table", "column", "top_up", "balance_cap"}
