"""Features of several nodes and views: what they are, whatever the way that the work is cut up."""

from __future__ import annotations

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from helpers_images import write_imagefolder
from PIL import Image, ImageOps
from torch import nn
from torchvision.models import VisionTransformer
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms import functional

import afltool
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.files.features import open_features
from afltool.options.features import ExtractOptions
from afltool.options.grammars import Node, Views, parse_node, parse_nodes, parse_views
from afltool.sources.backbones.families import TorchvisionSource
from afltool.sources.backbones.models import load_backbone
from afltool.sources.backbones.nodes import Intermediates, stage_nodes
from afltool.sources.extraction.engines import load_network
from afltool.sources.extraction.space import options_for, preprocessing_of, space_of

SIZE = 32


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """21 pictures of three classes, no multiple of a step; larger than what the network sees."""
    folder = tmp_path_factory.mktemp("images")
    return write_imagefolder(folder, per_class=7, splits=("train",), size=40)


def made(images, out, default, **options):
    given = {"weights": "random", "image_size": SIZE, "engine": "torch", **default, **options}
    return afltool.extract(backbone="resnet18", data=f"imagefolder:{images}", out=out, **given)


extract = partial(made, default={"node": "stages"})
seen = partial(made, default={"preprocess": "paper", "views": "flip"})


def values(path):
    with open_features(path) as features:
        return np.asarray(features.stored(0, len(features)))


def digest(path):
    return afltool.info(path)["digest"]


def ids_of(path):
    with open_features(path) as features:
        return features.row_ids.tolist()


@pytest.fixture(scope="module")
def staged(images, tmp_path_factory):
    return extract(images, tmp_path_factory.mktemp("staged") / "a.h5")


@pytest.fixture(scope="module")
def flipped(images, tmp_path_factory):
    return seen(images, tmp_path_factory.mktemp("flipped") / "a.h5")


# --- what --node says -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("layer3", Node("layer3")),
        ("layer3:mean+max", Node("layer3", "mean+max")),
        ("layer3*0.125", Node("layer3", None, 0.125)),
        ("a.b:token*1/8", Node("a.b", "token", 0.125)),
        ("a*4", Node("a", None, 4.0)),
    ],
)
def test_a_node_has_a_name_a_pooling_and_a_scale(text, node):
    assert parse_node(text) == node
    assert parse_node(str(node)) == node


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a:median"], "with a pooling of mean, max"),
        ([""], "--node is NAME"),
        (["a*3"], "a scale is a power of two"),
        (["a*0"], "power of two"),
        (["a*65536"], r"from 2\^-15 to 2\^15"),
        (["a*nan"], "power of two"),
        (["a", "b", "a*2"], "--node a is given twice"),
        (["penultimate:max"], "pooled by the network"),
    ],
)
def test_what_names_no_node_is_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        parse_nodes(texts)
    with pytest.raises(UsageError, match=message):
        afltool.extract(backbone="resnet18", data="digits", node=texts)


# --- what the features are ------------------------------------------------------------------------


def test_each_slice_is_what_torchvisions_extractor_gives(images):
    """A layer, its maximum, a node of the graph and the classifier's input, in the order asked."""
    texts = ["layer2", "penultimate", "layer3.1.relu_1:mean+max", "layer1:max*0.25"]
    backbone = load_backbone(
        "resnet18", weights="random", image_size=SIZE, nodes=parse_nodes(texts)
    )
    whole = load_backbone("resnet18", weights="random", image_size=SIZE).module
    x = torch.randn(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    wanted = {name: name for name in ("layer1", "layer2", "layer3.1.relu_1", "fc")}
    with torch.no_grad():
        expected, found = create_feature_extractor(whole, wanted)(x), backbone.module(x)
    maps = expected["layer3.1.relu_1"]
    parts = [
        expected["layer2"].mean((2, 3)), expected["fc"], maps.mean((2, 3)), maps.amax((2, 3)),
        expected["layer1"].amax((2, 3)) * 0.25,
    ]  # fmt: skip
    assert torch.equal(found, torch.cat(parts, dim=1))
    assert [s.name for s in backbone.slices] == [parse_node(t).slice_name for t in texts]
    assert [s.dim for s in backbone.slices] == [128, 512, 512, 64]
    assert (
        backbone.slices[2].node
        == "output of layer3.1.relu_1, averaged and the maximum over positions"
    )


def test_the_first_slice_of_stages_is_what_plain_features_are(images, staged, tmp_path):
    """One pass: the same numbers within a step of the last place, then the three stages before."""
    plain = extract(images, tmp_path / "plain.h5", node=())
    space, found = afltool.info(staged)["space"], values(staged)
    names = [(s["name"], s["dim"], s["scale"]) for s in space["slices"]]
    widths = {"penultimate": 512, "layer3": 256, "layer2": 128, "layer1": 64}
    assert names == [(name, width, 1) for name, width in widths.items()]
    assert space["dim"] == found.shape[1] == 960
    assert space["node"].startswith("input of fc; output of layer3, averaged over positions; ")
    assert np.abs(found[:, :512].astype(int) - values(plain)).max() <= 1
    alone = extract(images, tmp_path / "layer2.h5", node="layer2")
    assert np.abs(found[:, 768:896].astype(int) - values(alone)).max() <= 1
    assert "slices" not in afltool.info(alone)["space"]


def test_a_scale_moves_the_point_and_nothing_else(images, tmp_path):
    nodes = ["penultimate", "layer3"]
    a = extract(images, tmp_path / "a.h5", node=nodes, dtype="float32")
    b = extract(images, tmp_path / "b.h5", node=["penultimate", "layer3*1/4"], dtype="float32")
    np.testing.assert_array_equal(values(a)[:, :512], values(b)[:, :512])
    np.testing.assert_array_equal(values(a)[:, 512:] / 4, values(b)[:, 512:])
    with pytest.raises(InvalidDataError, match="beyond the range"):
        extract(images, tmp_path / "c.h5", node=["penultimate", "layer3*1024"])


def transformer():
    torch.manual_seed(0)
    return VisionTransformer(32, 16, 5, 2, 12, 24, num_classes=3).eval()


def test_tokens_are_pooled_without_the_class_token():
    network, source = transformer(), TorchvisionSource("vit_b_16")
    network.heads.head = nn.Identity()
    nodes = stage_nodes(source, network, 32)
    layer = "encoder.layers.encoder_layer_{}"
    assert nodes == [
        Node("penultimate"), Node(layer.format(4), "mean"),
        Node(layer.format(3), "token+mean"), Node(layer.format(2), "token+mean"),
    ]  # fmt: skip
    cut = Intermediates(source, network, [Node("stages")], "heads.head", 32).eval()
    slices = cut.slices
    x = torch.randn(2, 3, 32, 32)
    wanted = {f"{layer.format(k)}.add_1": str(k) for k in (2, 3, 4)}
    with torch.no_grad():
        tokens, found, last = create_feature_extractor(network, wanted)(x), cut(x), network(x)
    parts = [last, tokens["4"][:, 1:].mean(1)]
    for k in "32":
        parts += [tokens[k][:, 0], tokens[k][:, 1:].mean(1)]
    torch.testing.assert_close(found, torch.cat(parts, dim=1), rtol=0, atol=1e-6)
    assert [s.dim for s in slices] == [12, 12, 24, 24]
    assert slices[2].node.endswith("_3, class token and averaged over tokens")
    with pytest.raises(UsageError, match="For tokens, say what is taken: NODE:mean"):
        Intermediates(source, network, [Node(layer.format(3))], "heads.head", 32)
    with pytest.raises(UsageError, match="has no class token"):
        Intermediates(source, network, [Node("conv_proj", "token")], "heads.head", 32)


#: What `stages` takes besides the classifier's input, by family.
STAGES = {
    "efficientnet_lite0": ["blocks.5", "blocks.4", "blocks.3"],
    "resnet50": ["layer3", "layer2", "layer1"],
    "mobilenet_v2": ["features.17", "features.16", "features.13"],
    "efficientnet_b0": ["features.7", "features.6", "features.5"],
    "convnext_tiny": ["features.5", "features.3", "features.1"],
    "swin_t": ["features.5", "features.3", "features.1"],
    "regnet_y_400mf": [f"trunk_output.block{k}" for k in (3, 2, 1)],
    "densenet121": ["features.transition3", "features.denseblock3", "features.transition2"],
    "vit_b_16": [f"encoder.layers.encoder_layer_{k}"
                 for k in ("11:mean", "10:token+mean", "9:token+mean")],
    "timm:vit_tiny_patch16_224": ["blocks.11:mean", "blocks.10:token+mean", "blocks.9:token+mean"],
    "timm:swin_tiny_patch4_window7_224": ["layers.2", "layers.1", "layers.0"],
    "timm:mixer_s32_224": ["blocks.6:mean", "blocks.5:mean", "blocks.4:mean"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_every_family_has_its_stages(name):
    size = 224 if name.startswith("timm:") else 64
    backbone = load_backbone(name, weights="random", image_size=size, nodes=[Node("stages")])
    assert [s.name for s in backbone.slices] == ["penultimate", *STAGES[name]]


def test_a_network_without_stages_says_so():
    with pytest.raises(UsageError, match="no stages of squeezenet1_1 are known: name the nodes"):
        stage_nodes(TorchvisionSource("squeezenet1_1"), nn.Flatten(), 32)


def test_the_list_of_nodes_has_names_widths_and_places(cli, monkeypatch):
    """No name is shortened, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "30")
    command = ("extract", "--backbone", "resnet18", "--image-size", "64", "--list-nodes")
    rows = {row["name"]: row for row in json.loads(cli(*command, "--json").stdout)}
    assert rows["layer3"]["width"] == 256
    assert rows["layer3"]["output"] == "256 × 4 × 4"
    assert [n for n, row in rows.items() if row["stages"]] == [
        "layer1",
        "layer2",
        "layer3",
        "penultimate",
    ]
    places = [row["place"] for row in rows.values()]
    assert places == [f"{k} of {len(rows)}" for k in range(1, len(rows) + 1)]
    assert "fc" not in rows
    shown = cli(*command).stdout.splitlines()
    assert len(shown) == len(rows) + 1
    assert [line.split()[0] for line in shown[1:]] == [*rows]
    assert "256 × 4 × 4" in shown[1 + [*rows].index("layer3")]


# --- equal for any way of cutting up the work -----------------------------------------------------


@pytest.mark.parametrize("batch", [1, 23])
def test_one_digest_for_any_batch_size_and_number_of_threads(images, staged, tmp_path, batch):
    before = torch.get_num_threads()
    torch.set_num_threads(1 + batch % 3)
    try:
        other = extract(images, tmp_path / "a.h5", batch_size=batch, workers=1 + batch % 2)
        assert torch.get_num_threads() == 1 + batch % 3, "the process's own setting is put back"
    finally:
        torch.set_num_threads(before)
    assert digest(other) == digest(staged)
    assert afltool.info(other)["provenance"]["batch_size"] == 16


# --- what belongs together ------------------------------------------------------------------------


def test_a_head_refuses_features_of_other_nodes_by_name(images, staged, tmp_path):
    total = afltool.local_stats(staged, "linear", tmp_path / "t.h5", client="a")
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    assert afltool.evaluate(head, staged)["top1"] > 0.9
    fewer = extract(images, tmp_path / "fewer.h5", node=["penultimate", "layer3"])
    with pytest.raises(MismatchError, match=r"space\.(node|slices|dim)"):
        afltool.evaluate(head, fewer)
    scaled = extract(
        images, tmp_path / "scaled.h5", node=["penultimate", "layer3*0.5", "layer2", "layer1"]
    )
    with pytest.raises(
        MismatchError, match=r"space\.node.*of layer3, averaged over positions, times 0\.5; "
    ):
        afltool.evaluate(head, scaled)


def test_the_same_nodes_by_other_words_are_one_space(images, staged, tmp_path):
    nodes = ["penultimate", "layer3", "layer2", "layer1"]
    spelled = extract(images, tmp_path / "a.h5", node=nodes)
    assert afltool.info(spelled)["space"] == afltool.info(staged)["space"]
    assert digest(spelled) == digest(staged)
    plain = extract(images, tmp_path / "b.h5", node="penultimate")
    assert (
        afltool.info(plain)["recipe"]
        == afltool.info(extract(images, tmp_path / "c.h5", node=()))["recipe"]
    )


@pytest.mark.parametrize(
    ("node", "views"),
    [
        ("stages", None),
        ("layer3.1.relu_1", None),
        (("layer2:max", "penultimate*2"), None),
        ("stages", "flip"),
        ("stages", "flip+crops:2"),
    ],
)
def test_a_feature_space_says_all_that_its_features_are_made_by(images, tmp_path, node, views):
    """As whoever has a head does: the network that its space asks for, image by image."""
    path = extract(images, tmp_path / "a.h5", node=node, views=views)
    space, names = afltool.info(path)["space"], ids_of(path)
    options = options_for(space, weights="random", batch_size=16, engine="torch")
    assert (options.views, options.image_size) == (views, SIZE)
    network = load_network(options, preprocessing_of(space))
    assert json.loads(json.dumps(space_of(network, options))) == space

    def decode(index):
        return network.preprocessing.pixels(Image.open(images / names[index].decode()))

    rows = [rows for _, rows in network.features(decode, range(len(names)))]
    np.testing.assert_array_equal(np.rint(np.concatenate(rows) * 512), values(path))


# --- views ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "views"),
    [("flip", Views(True)), ("crops:5", Views(False, 5)), ("crops:2+flip", Views(True, 2))],
)
def test_views_are_named_in_any_order(text, views):
    assert parse_views(text) == views
    assert parse_views(str(views)) == views
    assert ExtractOptions(backbone="x", views=text).seen == views
    assert len(views) == (2 if views.flip else 1) * (views.crops or 1)


@pytest.mark.parametrize(
    "text", ["", "mirror", "flip+flip", "crops:1", "crops:6", "crops", "flip+"]
)
def test_what_names_no_views_is_refused(text):
    with pytest.raises(UsageError, match=r"--views is flip, crops:N or flip\+crops:N"):
        afltool.extract(backbone="resnet18", data="digits", views=text)


def test_the_square_that_views_are_cut_from_tells_their_side():
    views = Views(crops=5)
    assert [views.outer(s) for s in (224, 128, 32)] == [256, 146, 36]
    assert all(views.inner(views.outer(side)) == side for side in range(1, 600))
    assert Views(True).inner(7) == Views(True).outer(7) == 7
    with pytest.raises(UsageError, match="no view is cut from squares of 7 pixels"):
        views.inner(7)


def test_flip_is_the_mean_of_a_picture_and_its_mirror_image(images, flipped, tmp_path):
    """Exactly: of float32 features in float64, rounded once."""
    shutil.copytree(images, tmp_path / "mirrored")
    for path in (tmp_path / "mirrored").rglob("*.png"):
        ImageOps.mirror(Image.open(path)).save(path)
    # These nodes take steps as views do; the maximum keeps the first slice in company.
    two = {"node": ["penultimate", "layer1:max"], "dtype": "float32"}
    parts = [
        values(seen(folder, tmp_path / f"{folder.name}.h5", views=None, **two))
        for folder in (images, tmp_path / "mirrored")
    ]
    found = values(seen(images, tmp_path / "views.h5", **two))
    mean = ((parts[0].astype(np.float64) + parts[1]) / 2).astype(np.float32)
    assert not np.array_equal(parts[0], parts[1]), "the premise: mirroring changes features"
    np.testing.assert_array_equal(found, mean)
    np.testing.assert_array_equal(values(flipped), np.rint(mean[:, :512] * np.float64(512)))


def test_crops_are_torchvisions_five(images, tmp_path):
    """An independent loop: resize, five crops, their mirror images, the network, the mean."""
    path = seen(images, tmp_path / "a.h5", views="flip+crops:5", dtype="float32")
    found, ids = values(path), ids_of(path)
    network = load_backbone("resnet18", weights="random", image_size=SIZE).module
    expected = []
    for name in ids[:6]:
        picture = functional.resize(Image.open(images / name.decode()).convert("RGB"), [36])
        crops = functional.five_crop(picture, [SIZE, SIZE])
        both = [one for crop in crops for one in (crop, ImageOps.mirror(crop))]
        x = torch.stack([functional.to_tensor(one) for one in both])
        with torch.no_grad():
            expected.append(network((x - 0.5) / 0.5).double().mean(0).numpy())
    np.testing.assert_allclose(found[:6], np.stack(expected), rtol=1e-4, atol=1e-5)
    centre = values(seen(images, tmp_path / "b.h5", views="crops:2", dtype="float32"))
    assert np.abs(centre - found).max() > 1e-3


def test_merged_shards_and_totals_of_any_partition_are_the_whole(images, flipped, tmp_path):
    for i in range(3):  # with another size of a batch, and another number of threads
        how = {"batch_size": 23, "workers": 1 + i}
        seen(images, tmp_path / "shards" / f"{i}.h5", shard=f"{i}/3", **how)
    merged = afltool.merge([tmp_path / "shards"], tmp_path / "merged.h5")
    assert digest(merged) == digest(flipped)
    totals = set()
    for clients in (1, 4):
        dealt = afltool.partition(
            merged, tmp_path / f"{clients}.h5", scheme="iid", clients=clients, seed=0
        )
        total = tmp_path / f"total{clients}.h5"
        afltool.local_stats(merged, "linear", total, partition=dealt, sum=True)
        totals.add(digest(total))
    assert len(totals) == 1


def test_a_head_refuses_other_views_by_name(images, flipped, tmp_path):
    total = afltool.local_stats(flipped, "linear", tmp_path / "t.h5", client="a")
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    assert afltool.evaluate(head, flipped)["top1"] > 0.9
    for views, field in ((None, "views"), ("crops:2", r"preprocessing\.crop is 36")):
        other = seen(images, tmp_path / f"{views}.h5", views=views)
        with pytest.raises(MismatchError, match=rf"space\.{field}"):
            afltool.evaluate(head, other)
    assert "views" not in afltool.info(tmp_path / "None.h5")["space"]
