"""Options as people see them: types, ranges, grammars, TOML, signatures; said alike everywhere."""

from __future__ import annotations

import inspect
import math
import re
import shlex

import numpy as np
import pytest
import typer
from option_matrix import ANY, AXES, WORDS, command, of_heads, options, run_options

import afltool
from afltool.errors import UsageError
from afltool.files.heads import load_head
from afltool.lab.studies.cells import make_cell
from afltool.options.base import log_unused
from afltool.options.datasets import DATASETS
from afltool.options.statistics import LocalStatsOptions
from afltool.runs.config import read_config

# ------------------------------------------------------------ grammars


@pytest.mark.parametrize(("words", "said"), [
    ("extract --backbone r --shard 4/4", "I/N"),
    ("extract --backbone resnet18 --node :mean", "--node is NAME, NAME:POOLING"),
    ("extract --backbone resnet18 --views crops:6", "with N from 2 to 5; found 'crops:6'"),
    ("extract --backbone resnet18 --data svhn", "unknown data set 'svhn': there are digits"),
    ("extract --data digits", "--backbone"),
    ("extract --backbone resnet18 --engine openvino --device cuda", "runs on the processor"),
    ("local-stats {train} --partition {clients} --head linear --only 1-x", "0-9 or 3,7-8"),
    ("evaluate h.h5 x.h5 --counts --client a --bins 1", "LO:HI:COUNT"),
    ("partition x.h5 --scheme dirichlet", "given without --alpha, --clients; it needs"),
    ("partition x.h5 --scheme iid --clients 3 --top-up", "--scheme iid does not take --top-up"),
    ("partition x.h5 --scheme dirichlet-pfl --clients 3 --alpha 1 --seed 4294967296", "2^32"),
    ("run --train-features x.h5", "--train-features and --test-features go together"),
    ("run --train-features x.h5 --test-features y.h5 --partition p.h5 --alpha 1", "--alpha is for"),
    ("run --train-features x.h5 --test-features y.h5 --law pairwise", "needs --keep-clients"),
    ("run --data digits --backbone resnet18 --weights-seed 3", "--weights-seed is used only with"),
    ("head linear --ridge foo", "≥ 0, 'auto' or LO:HI:COUNT; found 'foo'"),
    ("head discriminant --rule fed3r --ridge auto", "a number ≥ 0; found 'auto'"),
    ("head linear --standardize --keep-gamma", "leave out --standardize"),
    ("slurm --data digits --backbone resnet18 --dry-run --submit", "--dry-run is not used with"),
    ("import {embeddings} --dtype float32 --fraction-bits 3",
     "--fraction-bits is used only with --dtype int16; found float32"),
    ("predict {head} {test} --weights random", "only with images as inputs: leave it out"),
    ("evaluate {head} {test} --bootstrap-samples 10",
     "--bootstrap-samples is used only with --metrics or --group-by or --resample-by"),
    ("evaluate {head} {test} --counts --metrics accuracy", "--counts is not used with --metrics"),
    ("local-stats {train} --client a --head {head0} --gamma 3", "gamma"),
    ("solve {total} --shrinkage 0.5", "--shrinkage"),
    ("run --train-features {train} --test-features {test} --clients 3 --head linear --buckets 4",
     "buckets"),
    ("alone evaluate {head} {test} --counts", "--counts is used only with --out"),
    ("partition no.h5 --clients x", "--clients"), ("partition no.h5 --seed=", "--seed"),
    ("run --data digits --backbone x --participation 2",
     "--participation is above 0, at most 1; found 2.0"),
    ("study --jobs 0", "--jobs is"),
    ("slurm --data digits --backbone x --cpus 0", "--cpus is 1 to 1000000; found 0"),
    ("baseline fedavg no.h5 --partition p --test t --lr 0", "--lr is above 0; found 0.0"),
    ("partition {train} --scheme dirichle", "dirichlet|shards"),
    ("local-stats {train} --client a --head linaer", "linear"),
    ("head linaer", "linaer"),
    ("extract --backbone resnet19 --data digits", "resnet18|resnet19"),
    ("extract --backbone resnet18 --data mnist", "cifar10|mnist"),
    ("local-stats {train} --head linear", "--partition FILE|--client NAME"),
    ("local-stats {train} --head {head} --client a", "is solved"),
    ("local-stats {train} --partition {clients} --head linear --only 3-9", "numbered 0 to 5"),
    ("solve {total} --no-such=1", "--no-such"),
    ("solve a b c d", "unexpected"),
    ("run a b c d", "unexpected"),
    ("study --no-such=1", "--no-such"),
    ("head linear a", "unexpected"),
])  # fmt: skip
def test_texts_with_a_grammar_and_options_that_do_not_go_together(words, said, road, cli, tmp_path):
    """An output is given, too, unless the line begins with alone."""
    name = {"predict": "o.csv", "export": "o.onnx"}.get(words.split()[0], "o.h5")
    out = [] if words.startswith("alone ") else ["-o", tmp_path / name]
    done = cli(*shlex.split(words.removeprefix("alone ").format(**vars(road))), *out)
    assert done.exit_code == 2
    message = " ".join(done.stderr.split())
    assert not [one for one in said.split("|") if one not in message], message
    assert "Traceback" not in message
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])


# ------------------------------------------------------------ Python


@pytest.mark.parametrize("name", ["extract", "import", "local-stats", "solve", "predict"])
def test_a_function_has_the_options_of_its_command(name):
    function = getattr(afltool, "import_embeddings" if name == "import" else name.replace("-", "_"))
    found = {p.replace("_", "-") for p in inspect.signature(function).parameters}
    heads = {option for every in of_heads().values() for option in every}
    assert options(name).keys() - heads <= found
    assert ("head-options" in found) == (name in ("local-stats", "solve"))


def test_keywords_that_are_none_and_what_is_missing(road, tmp_path):
    with pytest.raises(TypeError, match="image_siz"):
        afltool.extract(backbone="resnet18", data="digits", image_siz=3)
    with pytest.raises(TypeError, match="'rat'"):
        afltool.solve("a", "b", rat=1)
    with pytest.raises(UsageError, match="rat"):
        afltool.solve(road.total, tmp_path / "h.h5", head_options={"rat": 1})
    with pytest.raises(UsageError, match="--out is needed: "):
        afltool.solve("a")
    with pytest.raises(UsageError, match="--backbone is needed: frozen network"):
        afltool.extract(data="digits")
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        _ = afltool.solv
    assert {"solve", "RunConfig"} <= {*dir(afltool)}
    assert list(inspect.signature(afltool.solve).parameters)[:2] == ["total", "out"]


@pytest.mark.parametrize(("name", "value", "said"), [
    ("alpha", "x", "--alpha should be a valid number; found 'x'"),
    ("alpha", math.nan, "--alpha should be a finite number; found nan"),
    ("clients", 2.0, "--clients should be a valid integer; found 2.0"),
    ("clients", True, "--clients should be a valid integer; found True"),
    ("clients", 2**70, "--clients is 1 to 2\\^31 − 1; found 1180591620717411303424"),
    ("scheme", None, None),
    ("scheme", "even", "--scheme is iid, dirichlet, .* found 'even'"),
    ("table", "", "--table should be an instance of Path; found ''"),
    ("table", "a\0b", "--table should be an instance of Path"),
])  # fmt: skip
def test_a_value_of_another_type_is_refused_with_the_type_and_the_value(
    name, value, said, road, tmp_path
):
    given = {"alpha": 0.5, "clients": 3, name: value}
    if said is not None:
        with pytest.raises(UsageError, match=said):
            afltool.partition("/nowhere.h5", tmp_path / "o.h5", **given)
        with pytest.raises(UsageError, match=said):
            afltool.RunConfig(train_features="a", test_features="b", **given)
    else:  # None stands for "not given", in a run
        assert afltool.RunConfig(train_features="a", test_features="b", **given)


def test_an_option_that_nothing_uses_is_named_once(caplog):
    log_unused.cache_clear()
    said = "--participation-seed is used only with --participation: it changes nothing here"
    with caplog.at_level("INFO", logger="afltool"):
        for more in ({}, {"participation": 0.5}, {"participation_seed": None}):
            LocalStatsOptions(**{"participation_seed": 3, **more})
            LocalStatsOptions(**{"participation_seed": 3, **more})
    assert caplog.messages == [said]


def test_values_become_the_types_of_their_options(road, tmp_path):
    """A whole number for a real one, NumPy's numbers, a text for a path, one file for a list."""
    made = afltool.partition(str(road.train), str(tmp_path / "a.h5"), alpha=1, clients=np.int64(3))
    recipe = afltool.info(made)["recipe"]["options"]
    assert (recipe["alpha"], type(recipe["alpha"]), recipe["clients"]) == (1.0, float, 3)
    same = afltool.partition(road.train, tmp_path / "a.h5", alpha=1.0, clients=3)
    assert (made, same) == (tmp_path / "a.h5", tmp_path / "a.h5")
    left = road.stats / "client-0.h5"
    totals = [
        afltool.aggregate(given, tmp_path / f"{i}.h5", subtract=less)
        for i, (given, less) in enumerate([
            (str(road.stats), str(left)), ([road.stats], [left]), ([str(road.stats)], (left,)),
        ])
    ]  # fmt: skip
    assert len({afltool.info(path)["digest"] for path in totals}) == 1
    names = afltool.import_embeddings(
        road.embeddings, tmp_path / "f.h5", classes=["a", "b", "c", "d"]
    )
    assert afltool.info(names)["classes"] == ["a", "b", "c", "d"]
    for given in ({"classes": 3}, {"classes": ["a", 3]}, {"labels": ["a", "b"]}):
        with pytest.raises(UsageError, match=f"--{next(iter(given))} should be"):
            afltool.import_embeddings(road.embeddings, tmp_path / "g.h5", **given)


# ------------------------------------------------------------ options of heads


def test_options_of_a_head_are_those_of_the_commands_that_name_it(cli):
    """What several heads have is one option of `run`, of one type; its texts are each head's."""
    heads, types = of_heads(), {}
    assert len(heads) == 6
    for head, found in heads.items():
        own = {*cli("head", head, "--help-all").stdout.split()}
        assert own >= {f"--{o}" for o in found}, head
        for name in ("run", "slurm", "local-stats"):
            page = {*cli(name, "--head", head, "--help-all").stdout.split()}
            lost = {o for o in found if not page & {f"--{o}", f"--head-{o}", f"--no-{o}"}}
            assert lost == set(), (name, head)
        for option, p in found.items():
            types.setdefault(option, set()).add(str(p.type_descriptor.annotation))
    assert {option: found for option, found in types.items() if len(found) > 1} == {}
    assert {"ridge", "width", "seed", "thresholds"} <= types.keys()
    assert {"ridge", "min-norm", "keep-gamma"} <= options("solve").keys()
    assert "width" not in options("solve"), "the statistics depend on it"


def test_options_of_the_head_are_a_mapping_in_python(tmp_path):
    one = afltool.head("linear", tmp_path / "a.h5", head_options={"gamma": 0.5, "intercept": True})
    words = {"options": {"gamma": 0.5}}, {"gamma": 0.5}
    for more in words:
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            afltool.head("linear", tmp_path / "b.h5", **more)
    made = afltool.info(one)["options"]
    assert (made["gamma"], made["intercept"]) == (0.5, True)
    none = "'linear' has no option"
    for head, wrong, said in (
        ("linear", {"gama": 0.5}, none), ("linear", {"layers": 3}, none),
        ("linear", {"intercept": -1e164}, "--intercept should"), ("linear", {"ridge": [1]}, "be a"),
        ("linear", {"gamma": None}, "--gamma should be"), ("deepafl", {"layers": "2"}, "should be"),
        ("softmax", {"rounds": 2.5}, "--rounds should be"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            afltool.head(head, tmp_path / "d.h5", head_options=wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]


def test_a_head_names_what_its_layers_do_not_use(tmp_path, caplog):
    """Of the options that were given: others are filled in, and files hold them all."""
    cascade = {"deepening": "cascade", "block_ridge": 2.0}
    silent = [{"identity_omega": True, "activation": "tanh"}, {"deepening": "cascade"},
              {"preset": "cifar10", "block_ridge": 2.0}]  # fmt: skip
    three = ["--activation", "--block-ridge", "--hidden-width"]
    tried = [
        *((given, []) for given in silent),
        ({**cascade, "hidden_width": 8, "activation": "tanh"}, three),
        ({"identity_omega": True, "block_ridge": 2.0}, ["--block-ridge"]),
        ({"layers": 0, "block_ridge": 2.0}, ["--block-ridge"]),
        ({"deepening": "activated-cascade", "activation": "tanh", "hidden_width": 8},
         ["--hidden-width"]),
    ]  # fmt: skip
    for given, unused in tried:
        log_unused.cache_clear()  # a message is said once
        caplog.clear()
        with caplog.at_level("INFO", logger="afltool"):
            afltool.info(
                afltool.head("deepafl", tmp_path / "h", overwrite=True, head_options=given)
            )
        assert sorted(re.findall(r"(--[a-z-]+) is used only with", caplog.text)) == unused


def test_a_renamed_option_keeps_its_key_in_files_and_its_old_name_is_refused(road, tmp_path):
    """The digest of the head, and the names of cells, are those of before."""
    head = afltool.head("linear", tmp_path / "h.h5", head_options={"standardize": True})
    facts = afltool.info(head)
    assert facts["options"]["standardise"] is facts["recipe"]["options"]["standardise"] is True
    assert facts["digest"][:16] == "c01a64ddeffda9e8"
    assert load_head(head).head.options.standardize
    train, _ = afltool.split(road.train, tmp_path, test_size=0.25)
    options = {"part": "train", "test": 0.25, "seed": 0}
    assert afltool.info(train)["recipe"]["options"] == options
    images = {"data": "digits", "backbone": "resnet18"}
    for new, old, key in (
        ({"standardize": True}, {"standardise": True}, "linear-e765614dee3fe4c3"),
        ({"baseline": "centralized"}, {"baseline": "centralised"}, "centralised-093c4307e75d0625"),
    ):
        assert make_cell(images | new).key == key
        assert make_cell(images | old, True).key == make_cell(images | new, True).key
    (tmp_path / "c.toml").write_text("standardise = true")
    for use in (
        lambda: afltool.head("linear", head, head_options={"standardise": True}),
        lambda: afltool.RunConfig(**images, standardise=True),
        lambda: read_config(tmp_path / "c.toml"),
    ):
        with pytest.raises(UsageError, match="renamed: --standardize"):
            use()


# ------------------------------------------------------------ TOML


def as_toml(option, value):
    """A value as somebody writes it who knows the type of the option."""
    parameter = options("run")[option]
    if parameter.is_flag:
        return "true"
    kind = str(parameter.type_descriptor.annotation)
    is_number = re.search(r"int|float", kind) and re.fullmatch(r"[\d.]+", value)
    return value if is_number else f'"{value}"'


def test_every_option_of_a_run_is_a_key_of_its_toml(tmp_path, monkeypatch):
    """The same run, or the same refusal, as of the command line; another one than without it."""
    monkeypatch.chdir(tmp_path)
    given = {"data": "imagefolder:/nowhere", "backbone": "resnet18", "weights": "random"}
    heads = {option for every in of_heads().values() for option in every}
    elsewhere = AXES | {"head", "head-seed"}  # in the head's file, or used beside others
    config = tmp_path / "c.toml"

    def run_of(*words):
        try:
            return afltool.RunConfig(**run_options("slurm", *words))
        except (UsageError, typer.BadParameter):
            return "refused"

    plain, differ = run_of(*(f"--{k}={v}" for k, v in given.items())), []
    ours = {p.opts[0][2:] for p in command("slurm").params if p.name.startswith("options__")}
    for option in sorted(ours - heads):
        for value in WORDS.get(option, ANY).split():
            both = {**given, option: value}
            flags = {k for k in both if options("run")[k].is_flag}
            words = (f"--{k}" if k in flags else f"--{k}={v}" for k, v in both.items())
            typed = run_of(*words)
            config.write_text("".join(f"{k} = {as_toml(k, v)}\n" for k, v in both.items()))
            try:
                written = afltool.RunConfig(**read_config(config))
            except UsageError:
                written = "refused"
            if typed != written:
                differ.append((option, value, typed, written))
            if typed == plain and option not in elsewhere:
                differ.append((option, value, "is lost on the way"))
    assert not differ, "\n".join(map(str, differ))


def test_what_a_site_says_is_in_the_scripts_or_refused(cli, tmp_path):
    given = ["--data", "digits", "--backbone", "resnet18", "--clients", 200]
    shell, words = ["slurm", *given, "-o", tmp_path, "--dry-run", "--json"], {"time": "02:00:00"}
    plain, wrong = cli(*shell).stdout, []
    for option in (
        options("slurm").keys() - options("run").keys() - {"dry-run", "next", "submit", "site"}
    ):
        values = words.get(option, "5 7G other").split()
        tried = []
        for value in values:
            tried.append(cli(*shell, f"--{option}={value}"))
            if tried[-1].exit_code == 0:
                break
        changed = [one.exit_code == 0 and one.stdout != plain for one in tried]
        if not any(changed):
            wrong.append((option, [one.stderr for one in tried]))
        wrong += [
            (option, one.stderr) for one in tried if one.exit_code and option not in one.stderr
        ]
    assert not wrong


@pytest.mark.parametrize(("text", "said"), [
    ("client = 3", "client"),  # the nearest is named
    ("clients = 0", "--clients is 1 to"),
    ("alpha = nan", "--alpha should be .*found nan"),
    ("scheme = 'even'", "--scheme is iid"),
    ("train-features = ''", "--train-features should be"),
    ("ridge = []", "ridge"),
    ("clients = 3\nclients = 4", "c.toml"),
    ("[a]\nclients = 3\n[b]\nclients = 4", "clients"),
])  # fmt: skip
def test_a_toml_file_that_is_wrong(text, said, road, cli, tmp_path):
    (tmp_path / "c.toml").write_text(
        f"{text}\n" if text.startswith("[") else f"test-features = '{road.test}'\n{text}\n"
    )
    words = ["--train-features", road.train] if "train" not in text else []
    more = ["--test-features", road.test] if text.startswith("[") else []
    done = cli("run", tmp_path / "c.toml", *words, *more, "-o", tmp_path / "R")
    assert done.exit_code in (2, 3)
    assert re.search(said, " ".join(done.stderr.split())), done.stderr
    assert not (tmp_path / "R").exists()


def test_toml_may_have_tables_and_the_command_line_wins(road, cli, tmp_path):
    text = f"[files]\ntrain-features = '{road.train}'\ntest-features = '{road.test}'\n"
    (tmp_path / "c.toml").write_text(f"{text}[clients]\nclients = 5\nscheme = 'iid'\n")
    done = cli("run", tmp_path / "c.toml", "--clients", 3, "-o", tmp_path / "R")
    assert done.exit_code == 0, done.stderr
    assert afltool.info(tmp_path / "R" / "02-clients.h5")["clients"] == 3
    written = (tmp_path / "R" / "run.toml").read_text()
    assert 'scheme = "iid"' in written
    again = cli("run", tmp_path / "R" / "run.toml", "-o", tmp_path / "S")
    assert again.exit_code == 0, again.stderr
    digests = [afltool.info(tmp_path / at / "05-head.h5")["digest"] for at in "RS"]
    assert len(set(digests)) == 1


def test_paths_of_a_run_are_absolute_in_its_toml(cli, tmp_path, monkeypatch):
    """Of every kind of data set, of a network's file, of weights, a head, a table, a folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("w.pt", "c.txt", "h.h5", "t.csv", "resnet18"):
        (tmp_path / name).touch()
    plain = {"data": "digits", "backbone": "resnet18", "scheme": "iid", "clients": 2}
    kinds = [one.shown.partition(":") for one in DATASETS.data.values()]
    assert len(kinds) == 11
    texts = {
        ("data", f"{kind}:./s.csv"): f"{kind}:{tmp_path}/s.csv" for kind, _, path in kinds if path
    }
    texts |= {("data", kind): kind for kind, _, path in kinds if not path}
    texts["data", "hf:user/name:config"] = "hf:user/name:config"  # of the Hub
    texts |= {
        ("backbone", "resnet18"): "resnet18",  # a name, though there is a file of this name
        ("backbone", "n.afl"): f"{tmp_path}/n.afl", ("backbone", "timm:x"): "timm:x",
        ("weights", "w.pt"): f"{tmp_path}/w.pt", ("weights", "random"): "random",
        ("classes", "c.txt"): f"{tmp_path}/c.txt", ("head", "h.h5"): f"{tmp_path}/h.h5",
        ("head", "linear"): None, ("store", "k"): f"{tmp_path}/k",
        ("data_root", "d"): f"{tmp_path}/d",
    }  # fmt: skip
    for (option, value), wanted in texts.items():
        run = afltool.RunConfig(**{**plain, option: value}).with_absolute_paths()
        assert afltool.RunConfig(**run.given_options()) == run
        written = re.findall(rf'^{option.replace("_", "-")} = "(.*)"', run.to_toml(), re.M)
        assert written == ([] if wanted is None else [wanted]), (option, value)
