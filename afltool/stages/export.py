"""Stage `export`: a solved head, with or without its network → a file that runs elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import inputs
from ..errors import MismatchError
from ..exporting import Format, format_of
from ..exporting.card import card
from ..files.atomic import together, write_bytes, write_text
from ..files.evaluations import OfHead, check_evaluation
from ..files.heads import load_solved_head
from ..files.outputs import check_output
from ..heads.base import Head
from ..options.evaluation import Export
from ..plugins import need_torch
from ..progress import log

if TYPE_CHECKING:
    from ..exporting.build import Model
    from ..exporting.trial import Trial


def export(o: Export) -> Path:
    """Write a solved head as .onnx or .pt2, by the name of the file.

    The file takes float32 features, or with ``with_backbone`` uint8 pictures (n, h, w, 3), and
    gives scores, the predicted class and, where the head defines them, probabilities. Before it
    gets its name it is run on a sample and compared with afltool's own scores: a difference beyond
    the tolerance is a `NumericalError`, and nothing is written. ``card`` writes a model card beside
    it, with the figures of ``metrics``.
    """
    head, out, overwrite = o.head, o.out, o.overwrite
    if o.with_backbone:
        need_torch("export --with-backbone")
    packer = format_of(out)
    check_output(out)
    if o.card is not None:
        check_output(o.card)
    loaded = load_solved_head(head)
    solved, header = loaded
    evaluation = None if o.metrics is None else _evaluation(o.metrics, header, head)
    data, model, trial = _packed(packer, out, solved, head, header, o)
    text = _card(out, data, model, trial, loaded.report, evaluation) if o.card else ""
    with together():
        write_bytes(data, out, overwrite)
        if o.card is not None:
            write_text(text, o.card, overwrite)
    log.info(
        "export: %d sample rows agree with afltool's scores; the largest difference is %.2g of a "
        "row's largest score (tolerance %g)", trial.rows, trial.largest, trial.tolerance,
    )  # fmt: skip
    return out


def _packed(
    packer: Format,
    out: Path,
    head: Head,
    path: Path,
    header: Mapping[str, Any],
    o: Export,
) -> tuple[bytes, Model, Trial]:
    from ..exporting import build, trial

    bits = header["space"]["fraction_bits"]
    if not o.with_backbone:
        model = build.of_features(head, header)
        data, x = packer.pack(model), trial.sample_rows(head, bits)
        answers = packer.run(data, model, x)
        return data, model, trial.compare(head, bits, x, answers, str(out))
    from ..exporting import pictures

    network = pictures.network_in_fp32(path, header, o.weights, o.seed)
    model = pictures.of_pictures(head, header, network)
    data = packer.pack(model)
    return data, model, pictures.on_pictures(packer, data, model, network, head, bits, out)


def _evaluation(path: Path, header: Mapping[str, Any], head: Path) -> dict[str, Any]:
    """What `evaluate` wrote, if it is of this head."""
    found = inputs.read_json(path, "an evaluation")
    check_evaluation(path, found, OfHead)
    if found["head"]["digest"] != header["digest"]:
        raise MismatchError(
            f"{path} is the evaluation of another head, {found['head']['digest']}; {head} has the "
            f"digest {header['digest']}"
        )
    return dict(found)


def _card(
    out: Path,
    data: bytes,
    model: Model,
    trial: Trial,
    report: Mapping[str, Any],
    evaluation: dict[str, Any] | None,
) -> str:
    file = {
        "Name": out.name,
        "Bytes": len(data),
        "SHA-256": hashlib.sha256(data).hexdigest(),
        "Checked": f"run on {trial.rows} sample rows; scores differ from afltool's by at most "
        f"{trial.tolerance:g} of a row's largest score",
    }
    return card(model.metadata, report, file, evaluation)
