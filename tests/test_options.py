"""How options are declared: type, range, choices and help text, each said once."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

import afltool
from afltool.cli._options import parameters, with_options
from afltool.errors import AflError, UsageError
from afltool.keywords import by_keywords
from afltool.options import Options, help_of, made, option
from afltool.options.datasets import DATASETS
from afltool.options.features import ExtractOptions
from afltool.options.partition import SCHEMES, PartitionOptions


@dataclass(frozen=True, kw_only=True)
class Toy(Options):
    rate: float = option(1.0, "a rate", above=0, at_most=1)
    count: int | None = option(None, "a count", at_least=1, at_most=2**63 - 1, unit="rows")
    colour: str = option("red", "a colour", choices=("red", "green"))
    files: tuple[Path, ...] = option((), "some files")
    many: bool = option(False, "many of them")


@dataclass(frozen=True, kw_only=True)
class Needy(Toy):
    name: str = option(help="what it is called")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 0}, r"--rate is above 0, at most 1; found 0"),
        ({"rate": float("nan")}, r"--rate is above 0, at most 1; found nan"),
        ({"rate": "x"}, r"--rate takes a number; found 'x'"),
        ({"count": 0}, r"--count is 1 to 2\^63 − 1 rows; found 0"),
        ({"count": 2**70}, r"--count is 1 to 2\^63 − 1 rows; found 1180591620717411303424"),
        ({"count": True}, r"--count takes a whole number; found True"),
        ({"colour": "blue"}, r"--colour is red or green; found 'blue'"),
        ({"files": ("a", "")}, r"--files takes a path; found ''"),
        ({"many": 1}, r"--many takes true or false; found 1"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range_and_the_value(values, message):
    with pytest.raises(UsageError, match=message):
        Toy(**values)


def test_values_become_the_types_of_their_fields():
    toy = Toy(rate=1, files=["a", Path("b")], count=3)
    assert (toy.rate, type(toy.rate)) == (1.0, float)
    assert toy.files == (Path("a"), Path("b"))
    assert toy.chosen() == {"count": 3, "files": (Path("a"), Path("b"))}


def test_a_required_option_is_asked_for_and_an_unknown_one_is_a_mistake_of_the_program():
    with pytest.raises(UsageError, match="--name is needed: what it is called"):
        made(Needy, {})
    with pytest.raises(TypeError, match="nam"):
        made(Needy, {"name": "x", "nam": "y"})


def test_the_help_text_has_range_choices_and_default():
    texts = {f: help_of(Toy.__dataclass_fields__[f]) for f in ("rate", "count", "colour", "many")}
    assert texts == {
        "rate": "a rate (above 0, at most 1; default: 1)",
        "count": "a count (1 to 2^63 − 1 rows)",
        "colour": "a colour (red, green; default: red)",
        "many": "many of them",
    }


def test_a_command_gets_what_was_given_and_nothing_else():
    import typer
    from typer.testing import CliRunner

    seen = []

    def toy(file: Path, options: dict, rate_: int = 7) -> None:
        seen.append((file, options, rate_))

    app = typer.Typer()
    app.command()(with_options(toy, options=parameters(Toy, rename={"many": "lots"})))
    assert CliRunner().invoke(app, ["f"]).exit_code == 0
    args = ["f", "--rate", "0.5", "--files", "a", "--files", "b", "--lots"]
    assert CliRunner().invoke(app, args).exit_code == 0
    many = {"rate": 0.5, "files": (Path("a"), Path("b")), "lots": True}
    assert seen == [(Path("f"), {}, 7), (Path("f"), many, 7)]


def test_a_stage_is_called_with_keywords_and_shows_them(tmp_path):
    seen = []

    def toy(total: Path, out: Path, options: Toy = Toy(), *, again: bool = False) -> None:
        seen.append((total, out, options, again))

    stage = by_keywords(toy)
    shown = inspect.signature(stage).parameters
    assert list(shown) == ["total", "out", "rate", "count", "colour", "files", "many", "again"]
    assert shown["colour"].default == "red"
    stage("a", out=tmp_path / "b", rate=0.5, files=["c"], again=True)
    assert seen == [(Path("a"), tmp_path / "b", Toy(rate=0.5, files=(Path("c"),)), True)]
    with pytest.raises(TypeError, match=r"toy\(\) got an unexpected keyword argument 'rat'"):
        stage("a", "b", rat=1)
    with pytest.raises(TypeError, match=r"toy\(\) missing 1 required positional argument: 'out'"):
        stage("a")
    with pytest.raises(TypeError, match=r"extract\(\) .*image_siz"):
        afltool.extract("resnet18", "digits", image_siz=3)
    assert list(inspect.signature(afltool.extract).parameters)[:4] == [
        "backbone", "data", "split", "out"
    ]  # fmt: skip


def test_options_of_the_head_are_keywords_too(tmp_path):
    heads = [
        afltool.head("linear", tmp_path / "a.h5", gamma=0.5, intercept=True),
        afltool.head("linear", tmp_path / "b.h5", options={"gamma": 0.5, "intercept": True}),
        afltool.head("linear", tmp_path / "c.h5", head_options={"gamma": 0.5}, intercept=True),
    ]
    assert len({afltool.info(path)["digest"] for path in heads}) == 1
    with pytest.raises(TypeError, match=r"head\(\) got an unexpected keyword argument 'gama'"):
        afltool.head("linear", tmp_path / "d.h5", gama=0.5)
    with pytest.raises(UsageError, match="'linear' has no option 'layers'"):
        afltool.head("linear", tmp_path / "d.h5", layers=3)


# ------------------------------------------------------------ what is declared, and what is there


def test_names_that_are_declared_are_those_that_exist():
    """The declarations are light to import, so they cannot ask the modules that do the work."""
    from afltool.files import schema
    from afltool.partitions import dealing
    from afltool.sources import images as datasets
    from afltool.sources.backbones.inference import PRECISIONS

    declared = {f: ExtractOptions.__dataclass_fields__[f].metadata for f in ("dtype", "split")}
    assert declared["dtype"]["choices"] == tuple(schema.FEATURE_TYPES)
    assert declared["split"]["choices"] == tuple(datasets.SPLITS)
    precision = ExtractOptions.__dataclass_fields__["precision"].metadata["choices"]
    assert set(precision) == set(PRECISIONS)
    assert all(callable(dealing.scheme(name)) for name in SCHEMES)
    for one in DATASETS.values():
        module = import_module(one.module, "afltool.sources.images")
        assert callable(module.open_rows), one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--scheme dirichlet is given without --alpha, --clients; it needs --alpha, --clients"),
        ({"clients": 0, "alpha": 1}, "--clients is 1 to 2.31 − 1; found 0"),
        ({"clients": 3, "alpha": float("nan")}, "--alpha is 1e-100 to 1e.100; found nan"),
        ({"clients": 3, "alpha": -1}, "--alpha is 1e-100 to 1e.100; found -1"),
        ({"scheme": "iid", "clients": 3, "held_out": float("nan")}, "--held-out is .* found nan"),
        ({"scheme": "iid", "clients": 3, "top_up": True}, "--scheme iid does not take --top-up"),
        ({"scheme": "by-attribute"}, "by-attribute is given without --column, --table"),
        ({"scheme": "dirichlet-pfl", "clients": 3, "alpha": 1, "seed": 2**32}, "below 2.32"),
        ({"scheme": "even"}, "--scheme is iid, dirichlet, .* found 'even'"),
    ],
)
def test_what_a_scheme_does_not_take_is_refused_before_anything_is_read(options, message):
    with pytest.raises(UsageError, match=message):
        PartitionOptions(**options)
    with pytest.raises(UsageError, match=message):
        afltool.partition("/nowhere.h5", "/nowhere-either.h5", **options)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["extract", "--backbone", "resnet18", "--image-size", "1000000"], "1 to 4096 pixels"),
        (["extract", "--backbone", "resnet18", "--seed", str(2**70)], "--seed is 0 to 2^63 − 1"),
        (["extract", "--backbone", "resnet18", "--batch-size", str(10**9)], "1 to 65536"),
        (["extract"], "--backbone is needed"),
        (["partition", "x.h5", "--alpha", "nan", "-o", "y"], "found nan"),
        (["solve", "x.h5", "-o", "y", "--threads", "0"], "--threads is 1 to 1024; found 0"),
        (["run", "-o", "y", "--threads", "0"], "--threads is 1 to 1024; found 0"),
        (["local-stats", "x.h5", "--head", "linear", "-o", "y", "--participation-seed", "-1"],
         "--participation-seed is 0 to 2^63 − 1; found -1"),
        (["aggregate", "x.h5", "-o", "y", "--law", "none"], "--law is sum or pairwise"),
    ],
)  # fmt: skip
def test_the_command_refuses_what_the_declaration_refuses(args, message, cli):
    done = cli(*args)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("spec", "message"),
    [("svhn", "unknown"), ("digits:x", "unknown"), ("table", "unknown"), ("table:", "unknown"),
     ("imagefolder:a\0b", "NUL")],
)  # fmt: skip
def test_a_data_set_that_is_none_is_refused(spec, message):
    from afltool.options.datasets import named

    with pytest.raises(UsageError, match=message):
        named(spec)


def test_every_data_set_with_a_path_becomes_absolute(monkeypatch, tmp_path):
    """The help, the completion, the opener and the paths of run.toml follow from one line."""
    from afltool.cli._options import _completion
    from afltool.options.datasets import SHOWN, absolute_dataset
    from afltool.plans.config import RunConfig

    monkeypatch.chdir(tmp_path)
    for one in DATASETS.values():
        spec = f"{one.name}:some.csv" if one.takes else one.name
        expected = f"{one.name}:{tmp_path}/some.csv" if one.takes else one.name
        assert absolute_dataset(spec) == expected
        run = RunConfig(data=spec, backbone="resnet18").with_absolute_paths()
        assert run.extract.data == expected
    field = ExtractOptions.__dataclass_fields__["data"]
    assert set(_completion(field)("")) == set(SHOWN)
    assert all(one in help_of(field) for one in SHOWN)


def test_options_of_one_name_are_the_same_option_for_every_head():
    """The command line has one flag of a name: which head declares it first may not matter."""
    from typing import get_args

    from afltool.cli._options import OPTIONS, of_heads

    seen = {}
    for head in OPTIONS:
        for p in of_heads([head]):
            kind, told = get_args(p.annotation)[0], p.annotation.__metadata__[0]
            facts = (kind, p.default, told.param_decls, told.metavar)
            assert seen.setdefault(p.name, facts) == facts, (head, p.name)
    assert {"ridge", "width", "seed", "thresholds"} <= set(seen)


@pytest.mark.parametrize(
    ("head", "given", "message"),
    [
        ("linear", {"ridge": "foo"}, "≥ 0, 'auto' or LO:HI:COUNT; found 'foo'"),
        ("random-features", {"ridge": "a=1"}, "≥ 0, 'auto' or LO:HI:COUNT; found 'a=1'"),
        ("discriminant", {"rule": "fed3r", "ridge": "auto"}, "a number ≥ 0; found 'auto'"),
        ("safle", {"thresholds": "nosuch"}, "no file nosuch: `afltool head safle -h` has what --t"),
    ],
)
def test_a_text_with_a_grammar_is_refused_with_the_grammar_of_its_head(
    tmp_path, head, given, message
):
    with pytest.raises(AflError, match=message):
        afltool.head(head, tmp_path / "head.h5", **given)
