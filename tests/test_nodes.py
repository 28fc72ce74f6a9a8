"""Features of several nodes and views: what they are, whatever the way that the work is cut up."""

from __future__ import annotations

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from helpers_images import Narrow, ids_of, narrow, values, write_imagefolder  # noqa: F401
from PIL import Image, ImageOps
from torch import nn
from torchvision.models import VisionTransformer
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms import functional

import afltool
from afltool.backbones.families import FAMILIES, TorchvisionSource
from afltool.backbones.models import load_backbone
from afltool.backbones.nodes import Cut, Intermediates
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.extraction.engines import load_network
from afltool.extraction.space import get_preprocessing, make_space, options_for
from afltool.options.features import ExtractOptions
from afltool.options.grammars import Node, Views, parse_node, parse_nodes, parse_views

SIZE = 32


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """21 pictures of three classes, no multiple of a step; larger than what the network sees."""
    folder = tmp_path_factory.mktemp("images")
    return write_imagefolder(folder, per_class=7, splits=("train",), size=40)


def made(images, out, default, **options):
    given = {"weights": "random", "image_size": SIZE, "engine": "torch", **default, **options}
    return afltool.extract(backbone="narrow", data=f"imagefolder:{images}", out=out, **given)


extract = partial(made, default={"node": "stages"})
seen = partial(made, default={"preprocess": "paper", "views": "flip"})


def digest(path):
    return afltool.info(path)["digest"]


@pytest.fixture(scope="module")
def staged(images, tmp_path_factory):
    return extract(images, tmp_path_factory.mktemp("staged") / "a.h5")


@pytest.fixture(scope="module")
def flipped(images, tmp_path_factory):
    return seen(images, tmp_path_factory.mktemp("flipped") / "a.h5")


# --- what --node and --views say ------------------------------------------------------------------


def test_a_node_has_a_name_a_pooling_and_a_scale():
    for text, node in (
        ("layer3", Node("layer3")),
        ("layer3:mean+max", Node("layer3", "mean+max")),
        ("layer3*0.125", Node("layer3", None, 0.125)),
        ("a.b:token*1/8", Node("a.b", "token", 0.125)),
        ("a*4", Node("a", None, 4.0)),
    ):
        assert parse_node(text) == node
        assert parse_node(str(node)) == node


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a:median"], "with a pooling of mean, max"),
        (["a*3"], "a scale is a power of two"),
        (["a*65536"], r"from 2\^-15 to 2\^15"),
        (["a", "b", "a*2"], "--node a is given twice"),
        (["penultimate:max"], "pooled by the network"),
    ],
)
def test_what_names_no_node_is_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        parse_nodes(texts)
    with pytest.raises(UsageError, match=message):
        afltool.extract(backbone="resnet18", data="digits", node=texts)


def test_views_are_named_in_any_order_and_nothing_else_is():
    for text, views in (("flip", Views(True)), ("crops:5", Views(False, 5)),
                        ("crops:2+flip", Views(True, 2))):  # fmt: skip
        assert parse_views(text) == parse_views(str(views)) == views
        assert ExtractOptions(backbone="x", views=text).seen == views
        assert len(views) == (2 if views.flip else 1) * (views.crops or 1)
    for text in ("", "mirror", "flip+flip", "crops:1", "crops:6", "flip+"):
        with pytest.raises(UsageError, match=r"--views is flip, crops:N or flip\+crops:N"):
            afltool.extract(backbone="resnet18", data="digits", views=text)


def test_the_square_that_views_are_cut_from_tells_their_side():
    views = Views(crops=5)
    assert [views.outer(s) for s in (224, 128, 32)] == [256, 146, 36]
    assert all(views.inner(views.outer(side)) == side for side in range(1, 600))
    assert Views(True).inner(7) == Views(True).outer(7) == 7
    with pytest.raises(UsageError, match="no view is cut from squares of 7 pixels"):
        views.inner(7)


# --- what the features are ------------------------------------------------------------------------


def test_each_slice_is_what_torchvisions_extractor_gives():
    """A layer, its maximum, a node of the graph and the classifier's input, in the order asked."""
    texts = ["layer2", "penultimate", "layer3.0.relu_1:mean+max", "layer1:max*0.25"]
    backbone = load_backbone("narrow", weights="random", image_size=SIZE, nodes=parse_nodes(texts))
    whole = load_backbone("narrow", weights="random", image_size=SIZE).module
    x = torch.randn(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    wanted = {name: name for name in ("layer1", "layer2", "layer3.0.relu_1", "fc")}
    with torch.no_grad():
        expected, found = create_feature_extractor(whole, wanted)(x), backbone.module(x)
    maps = expected["layer3.0.relu_1"]
    parts = [
        expected["layer2"].mean((2, 3)), expected["fc"], maps.mean((2, 3)), maps.amax((2, 3)),
        expected["layer1"].amax((2, 3)) * 0.25,
    ]  # fmt: skip
    assert torch.equal(found, torch.cat(parts, dim=1))
    assert [s.name for s in backbone.slices] == [parse_node(t).slice_name for t in texts]
    assert [s.dim for s in backbone.slices] == [16, 64, 64, 8]
    label = "output of layer3.0.relu_1, averaged and the maximum over positions"
    assert backbone.slices[2].node == label


def test_a_layer_and_the_last_one_in_it_have_one_output():
    """Also beside each other, where torchvision's extractor gives an earlier one for the second."""
    x = torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    nodes = parse_nodes(["layer3", "layer3.0", "layer3.0.relu_1", "layer3.0.add", "penultimate"])
    both = load_backbone("narrow", weights="random", image_size=SIZE, nodes=nodes).module
    alone = [
        load_backbone("narrow", weights="random", image_size=SIZE, nodes=[node]).module(x)
        for node in nodes
    ]
    assert torch.equal(alone[0], alone[1])
    assert torch.equal(both(x), torch.cat(alone, dim=1))


def test_the_first_slice_of_stages_is_what_plain_features_are(images, staged, tmp_path):
    """One pass: the same numbers within a step of the last place, then the three stages before."""
    plain = extract(images, tmp_path / "plain.h5", node=())
    space, found = afltool.info(staged)["space"], values(staged)
    names = [(s["name"], s["dim"], s["scale"]) for s in space["slices"]]
    widths = {"penultimate": 64, "layer3": 32, "layer2": 16, "layer1": 8}
    assert names == [(name, width, 1) for name, width in widths.items()]
    assert space["dim"] == found.shape[1] == 120
    assert space["node"].startswith("input of fc; output of layer3, averaged over positions; ")
    assert np.abs(found[:, :64].astype(int) - values(plain)).max() <= 1
    alone = extract(images, tmp_path / "layer2.h5", node="layer2")
    assert np.abs(found[:, 96:112].astype(int) - values(alone)).max() <= 1
    assert "slices" not in afltool.info(alone)["space"]
    spelled = extract(images, tmp_path / "spelled.h5", node=list(widths))
    assert afltool.info(spelled)["space"] == space, "the same nodes by other words are one space"
    assert digest(spelled) == digest(staged)
    same = extract(images, tmp_path / "same.h5", node="penultimate")
    assert afltool.info(same)["recipe"] == afltool.info(plain)["recipe"]


def test_a_scale_moves_the_point_and_nothing_else(images, tmp_path):
    nodes = ["penultimate", "layer3"]
    a = extract(images, tmp_path / "a.h5", node=nodes, dtype="float32")
    b = extract(images, tmp_path / "b.h5", node=["penultimate", "layer3*1/4"], dtype="float32")
    np.testing.assert_array_equal(values(a)[:, :64], values(b)[:, :64])
    np.testing.assert_array_equal(values(a)[:, 64:] / 4, values(b)[:, 64:])
    with pytest.raises(InvalidDataError, match="beyond the range"):
        extract(images, tmp_path / "c.h5", node=["penultimate", "layer3*8192"])


def test_tokens_are_pooled_without_the_class_token():
    torch.manual_seed(0)
    network = VisionTransformer(32, 16, 5, 2, 12, 24, num_classes=3).eval()
    network.heads.head = nn.Identity()
    place = Cut(TorchvisionSource("vit_b_16"), network, "heads.head", 32)
    nodes = place.stages(Node("stages"))
    layer = "encoder.layers.encoder_layer_{}"
    assert nodes == [
        Node("penultimate"), Node(layer.format(4), "mean"),
        Node(layer.format(3), "token+mean"), Node(layer.format(2), "token+mean"),
    ]  # fmt: skip
    cut = Intermediates(place, [Node("stages")]).eval()
    x = torch.randn(2, 3, 32, 32)
    wanted = {f"{layer.format(k)}.add_1": str(k) for k in (2, 3, 4)}
    with torch.no_grad():
        tokens, found, last = create_feature_extractor(network, wanted)(x), cut(x), network(x)
    parts = [last, tokens["4"][:, 1:].mean(1)]
    for k in "32":
        parts += [tokens[k][:, 0], tokens[k][:, 1:].mean(1)]
    torch.testing.assert_close(found, torch.cat(parts, dim=1), rtol=0, atol=1e-6)
    assert [s.dim for s in cut.slices] == [12, 12, 24, 24]
    assert cut.slices[2].node.endswith("_3, class token and averaged over tokens")
    with pytest.raises(UsageError, match="of tokens say what is taken: NODE:mean"):
        Intermediates(place, [Node(layer.format(3))])
    with pytest.raises(UsageError, match=r"ln_1: torch\.fx may call another layer so"):
        Intermediates(place, [Node(f"{layer.format(3)}.ln_1", "mean")])  # it would give ln_2
    with pytest.raises(UsageError, match="has no class token"):
        Intermediates(place, [Node("conv_proj", "token")])


#: What `stages` takes besides the classifier's input, by family.
STAGES = {
    "efficientnet_lite0": ["blocks.5", "blocks.4", "blocks.3"],
    "resnet50": ["layer3", "layer2", "layer1"],
    "efficientnet_b0": ["features.7", "features.6", "features.5"],
    "convnext_tiny": ["features.5", "features.3", "features.1"],
    "swin_t": ["features.5", "features.3", "features.1"],
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
    with pytest.raises(UsageError, match="no stages of googlenet are known: name layers"):
        Cut(TorchvisionSource("googlenet"), nn.Flatten(), "", 32).stages(Node("stages"))


# --- what belongs together ------------------------------------------------------------------------


def test_a_head_refuses_features_of_other_nodes_and_views_by_name(
    images, staged, flipped, tmp_path
):
    def refused(rows, others):
        total = afltool.local_stats(rows, "linear", tmp_path / f"{rows.parent.name}.h5", client="a")
        out = tmp_path / f"head-{rows.parent.name}.h5"
        head = afltool.solve(total, out, head_options={"ridge": 1.0})
        assert afltool.evaluate(head, rows)["top1"] > 0.9
        for other, field in others.items():
            with pytest.raises(MismatchError, match=rf"space\.{field}"):
                afltool.evaluate(head, other)

    fewer = extract(images, tmp_path / "fewer.h5", node=["penultimate", "layer3"])
    nodes = ["penultimate", "layer3*0.5", "layer2", "layer1"]
    scaled = extract(images, tmp_path / "scaled.h5", node=nodes)
    times = r"node.*of layer3, averaged over positions, times 0\.5; "
    refused(staged, {fewer: "(node|slices|dim)", scaled: times})
    whole, crops = (seen(images, tmp_path / f"{v}.h5", views=v) for v in (None, "crops:2"))
    assert "views" not in afltool.info(whole)["space"]
    refused(flipped, {whole: "views", crops: r"preprocessing\.crop is 36"})


class Headless(Narrow):
    """A network that is published without a classifier."""

    def network(self, image_size, weights=None):
        return super().network(image_size, weights)[0], ""


def test_a_network_without_a_classifier_is_found_again_by_its_space(images, tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES.data, "narrow", f"{__name__}:Headless")
    space = afltool.info(extract(images, tmp_path / "a.h5", node=()))["space"]
    assert space["node"] == "output of the network"
    options = options_for(space, weights="random", engine="torch")
    network = load_network(options, get_preprocessing(space))
    assert json.loads(json.dumps(make_space(network, options))) == space


@pytest.mark.parametrize(
    ("node", "views"),
    [
        ("layer3.0.relu_1", None),
        (("layer2:max", "penultimate*2"), None),
        ("stages", "flip+crops:2"),
    ],
)
def test_a_feature_space_says_all_that_its_features_are_made_by(images, tmp_path, node, views):
    """As whoever has a head does: the network that its space asks for, image by image."""
    path = extract(images, tmp_path / "a.h5", node=node, views=views)
    space, names = afltool.info(path)["space"], ids_of(path)
    options = options_for(space, weights="random", engine="torch")
    assert (options.views, options.image_size) == (views, SIZE)
    network = load_network(options, get_preprocessing(space))
    assert json.loads(json.dumps(make_space(network, options))) == space

    def decode(index):
        return network.preprocessing.pixels(Image.open(images / names[index].decode()))

    rows = [rows for _, rows in network.features(decode, range(len(names)))]
    np.testing.assert_array_equal(np.rint(np.concatenate(rows) * 512), values(path))


# --- views ----------------------------------------------------------------------------------------


def test_flip_is_the_mean_of_a_picture_and_its_mirror_image(images, flipped, tmp_path):
    """Exactly: of float32 features in float64, rounded once."""
    shutil.copytree(images, tmp_path / "mirrored")
    for path in (tmp_path / "mirrored").rglob("*.png"):
        ImageOps.mirror(Image.open(path)).save(path)
    two = {"node": ["penultimate", "layer1:max"], "dtype": "float32"}
    parts = [
        values(seen(folder, tmp_path / f"{folder.name}.h5", views=None, **two))
        for folder in (images, tmp_path / "mirrored")
    ]
    found = values(seen(images, tmp_path / "views.h5", **two))
    mean = ((parts[0].astype(np.float64) + parts[1]) / 2).astype(np.float32)
    assert not np.array_equal(parts[0], parts[1]), "the premise: mirroring changes features"
    np.testing.assert_array_equal(found, mean)
    np.testing.assert_array_equal(values(flipped), np.rint(mean[:, :64] * np.float64(512)))


def test_crops_are_torchvisions_five(images, tmp_path):
    """An independent loop: resize, five crops, their mirror images, the network, the mean."""
    path = seen(images, tmp_path / "a.h5", views="flip+crops:5", dtype="float32")
    found, ids = values(path), ids_of(path)
    network = load_backbone("narrow", weights="random", image_size=SIZE).module
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
