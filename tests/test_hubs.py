"""Backbones of OpenCLIP and Transformers, from folders that the libraries wrote."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from helpers_images import values, write_imagefolder
from PIL import Image

import afltool
from afltool.backbones.families import preprocessing_for
from afltool.backbones.models import load_backbone, weights_identity
from afltool.backbones.preprocessing import Preprocessing
from afltool.errors import InputError, InvalidDataError, UsageError

TINY = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "image_size": 32, "patch_size": 8}  # fmt: skip
X = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def open_clip():
    return pytest.importorskip("open_clip")


@pytest.fixture(scope="module")
def vit(transformers, tmp_path_factory):
    """A ViT with a classifier, and no layer for pretraining; and its folder."""
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**TINY)).eval()
    folder = tmp_path_factory.mktemp("vit")
    model.save_pretrained(folder)
    described = {"size": {"height": 32, "width": 32}, "image_mean": [0.5, 0.4, 0.3],
                 "image_std": [0.2, 0.3, 0.4], "resample": 2, "do_normalize": True}  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(described))
    return model, folder


def features(name, **more):
    with torch.inference_mode():
        return load_backbone(name, image_size=32, **more).module(X)


def test_a_vit_of_transformers_gives_what_its_classifier_gets(vit):
    model, folder = vit
    with torch.inference_mode():
        found = model.classifier(features(f"hf:{folder}"))
        assert torch.equal(found, model(X).logits)
    backbone = load_backbone(f"hf:{folder}", image_size=48)
    assert (backbone.dim, backbone.node) == (12, "output of the network")
    assert backbone.weights_digest == load_backbone(f"hf:{folder}", image_size=32).weights_digest


def test_the_image_tower_of_a_model_with_texts_and_a_pooled_map(transformers, tmp_path):
    text = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 16, "vocab_size": 99}  # fmt: skip
    clip = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=TINY))
    resnet = transformers.ResNetModel(
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    )
    for model, tower in ((clip, clip.vision_model), (resnet, resnet)):
        folder = tmp_path / type(model).__name__
        model.eval().save_pretrained(folder)
        with torch.inference_mode():
            expected = tower(pixel_values=X).pooler_output.flatten(1)
        assert torch.equal(features(f"hf:{folder}"), expected)


def test_images_are_prepared_as_the_folder_says(vit, tmp_path):
    _, folder = vit
    assert preprocessing_for("weights", f"hf:{folder}") == Preprocessing(
        "weights", 32, 32, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), "bilinear", squash=True
    )
    told = json.loads((folder / "preprocessor_config.json").read_text())
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())

    def said(**change):
        text = json.dumps({**told, **change})
        (tmp_path / "preprocessor_config.json").write_text(text)
        return preprocessing_for("weights", f"hf:{tmp_path}")

    crop = {"do_center_crop": True, "crop_size": {"height": 28, "width": 28}}
    cropped = said(size={"shortest_edge": 32}, resample=3, **crop)
    assert (cropped.resize, cropped.crop, cropped.squash) == (32, 28, False)
    assert cropped.interpolation == "bicubic"
    convnext = said(size={"shortest_edge": 28}, crop_pct=0.875)
    assert (convnext.resize, convnext.crop, convnext.squash) == (32, 28, False)
    for odd in (
        {"size": {"shortest_edge": 32}},
        {"rescale_factor": 1.0},
        {"do_normalize": False},
        {"size": {"height": 32, "width": 40}},
    ):
        with pytest.raises(UsageError, match=r"known here are .*--preprocess paper"):
            said(**odd)


def test_what_a_folder_lacks_is_said(vit, transformers, tmp_path, monkeypatch):
    from safetensors.torch import load_file, save_file

    _, folder = vit
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    state = load_file(broken / "model.safetensors")
    lost = next(key for key in state if "layer" in key and key.endswith("weight"))
    save_file({k: v for k, v in state.items() if k != lost}, broken / "model.safetensors")
    with pytest.raises(InvalidDataError, match=r"has no weights of .*weight"):
        features(f"hf:{broken}")
    assert weights_identity(f"hf:{broken}") != weights_identity(f"hf:{folder}")
    (broken / "model.safetensors").write_bytes(b"half a download")
    with pytest.raises(InputError, match=r"broken: the weights \(.safetensors\) cannot be read"):
        features(f"hf:{broken}")
    (broken / "preprocessor_config.json").write_text("{}")
    (broken / "open_clip_config.json").write_text("{}")
    for kind in ("hf", "open_clip") if find_spec("open_clip") else ("hf",):
        with pytest.raises(InputError, match=r"broken: the .* cannot be read: 'size'|'model_cfg'"):
            preprocessing_for("weights", f"{kind}:{broken}")
    masked = transformers.ViTMAEConfig(**TINY)
    masked.save_pretrained(tmp_path / "mae")
    with pytest.raises(UsageError, match="masks parts of an image at random"):
        features(f"hf:{tmp_path / 'mae'}", weights="random")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"hf:nobody/nothing could not be downloaded"):
        features("hf:nobody/nothing")


@pytest.fixture(scope="module")
def clip(open_clip, tmp_path_factory):
    """A small model of OpenCLIP, and its folder as OpenCLIP writes one."""
    from safetensors.torch import save_file

    vision = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8}
    text = {"context_length": 8, "vocab_size": 99, "width": 16, "heads": 2, "layers": 1}
    architecture = {"embed_dim": 24, "vision_cfg": vision, "text_cfg": text}
    torch.manual_seed(0)
    model = open_clip.CLIP(**architecture).eval()
    folder = tmp_path_factory.mktemp("clip")
    way = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4], "interpolation": "bilinear",
           "resize_mode": "squash"}  # fmt: skip
    config = {"model_cfg": architecture, "preprocess_cfg": way}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return model, folder


def test_an_image_tower_of_openclip_gives_embeddings_of_images(clip, open_clip):
    model, folder = clip
    with torch.inference_mode():
        expected = model.encode_image(X)
    name = f"open_clip:{folder}"
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(features(name), expected, **close)
    file = folder / "open_clip_model.safetensors"
    assert torch.equal(features(name, weights=str(file)), features(name))
    assert not torch.allclose(features(name, weights="random", seed=1), expected, **close)
    assert load_backbone(name, image_size=32).dim == 24
    ours, rng = preprocessing_for("weights", name), np.random.default_rng(0)
    theirs = open_clip.transform.image_transform_v2(
        open_clip.transform.PreprocessCfg(size=32, mean=ours.mean, std=ours.std,
                                          interpolation="bilinear", resize_mode="squash"),
        is_train=False,
    )  # fmt: skip
    for size in ((40, 50, 3), (64, 20, 3)):
        image = Image.fromarray(rng.integers(0, 256, size, np.uint8))
        pixels = torch.from_numpy(ours.pixels(image))[None]
        torch.testing.assert_close(ours.normalize(pixels)[0], theirs(image), rtol=0, atol=1e-6)


def test_names_of_openclip_and_its_tags(open_clip):
    name = "open_clip:ViT-B-32"
    published = preprocessing_for("weights", name, "openai")
    assert (published.crop, published.interpolation) == (224, "bicubic")
    assert weights_identity(name, "openai") != weights_identity(name, "laion2b_s34b_b79k")
    for weights, error, said in (
        ("default", UsageError, "known are random, openai, laion400m_e31"),
        ("IMAGENET1K_V1", UsageError, "neither a file nor weights of open_clip:ViT-B-32"),
    ):
        with pytest.raises(error, match=said):
            load_backbone(name, weights=weights)
    with pytest.raises(UsageError, match="no such model of OpenCLIP"):
        load_backbone("open_clip:ViT-B-33", weights="random")


@pytest.mark.parametrize("kind", ["vit", "clip"])
def test_they_are_extracted_as_others_and_a_head_predicts_images(kind, request, tmp_path):
    _, folder = request.getfixturevalue(kind)
    images = write_imagefolder(tmp_path / "images", per_class=5, splits=("train",))
    name = f"{ {'vit': 'hf', 'clip': 'open_clip'}[kind] }:{folder}"
    made = {
        engine: afltool.extract(backbone=name, data=f"imagefolder:{images}", engine=engine,
                                store=tmp_path / "store", out=tmp_path / f"{engine}.h5")
        for engine in ("torch", "onnxruntime")
    }  # fmt: skip
    away = np.abs(values(made["torch"]).astype(int) - values(made["onnxruntime"]))
    assert away.max() <= 1
    assert values(made["torch"]).std() > 1
    total = afltool.local_stats(made["torch"], "linear", tmp_path / "t.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    said = afltool.predict(head, [images], tmp_path / "p.csv", engine="torch")
    assert (said["rows"], said["errors"]) == (15, 0)
