"""The demo: real images → ImageNet features → 100 clients → one sum → a checked accuracy.

scikit-learn's 1,797 handwritten digits (real scans, 8 × 8) go through EfficientNet-Lite0, whose
ImageNet weights come as a Python package, so nothing but packages is downloaded. The same rows are
dealt to clients in three ways; the totals, and so the heads, have the same digest.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import afltool
from afltool.errors import AflError, NumericalError
from afltool.rendering.tables import describe_upload

PARTITIONS = {
    "dirichlet α = 0.1": {"scheme": "dirichlet", "alpha": 0.1},
    "shards, 2 a client": {"scheme": "shards", "shards_per_client": 2},
    "iid": {"scheme": "iid"},
}
console = Console()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-output"))
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--weights", default="default")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--clients", type=int, default=100)
    # Not auto: the total's digest shall not depend on which packages are installed.
    parser.add_argument("--engine", default="onnxruntime")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    begun = time.perf_counter()
    runs = {}
    for number, (name, scheme) in enumerate(PARTITIONS.items(), start=1):
        console.rule(f"run {number} of {len(PARTITIONS)}: {name}")
        config = afltool.RunConfig(
            data="digits",
            backbone=args.backbone,
            weights=args.weights,
            image_size=args.image_size,
            preprocess="paper",  # of earlier demos: the total has their digest
            engine=args.engine,
            clients=args.clients,
            store=args.out / "store",
            head="linear",
            keep_clients=number == 1,  # one file a client; the other runs add up as they go
            head_options={"ridge": "auto"},
            **scheme,
        )
        folder = afltool.run(config, args.out / f"run-{number}-{scheme['scheme']}")
        runs[name] = (folder, json.loads((folder / "summary.json").read_text()))
    first = next(iter(runs.values()))[0]
    why_a_ridge(first)
    pictures = draw(args.out, first)
    return report(runs, pictures, time.perf_counter() - begun)


def why_a_ridge(folder: Path) -> None:
    """Show that these data do not determine a head by themselves, and what the tool says then."""
    console.rule("why this demo uses a ridge")
    try:
        afltool.solve(
            folder / "04-total.h5",
            folder / "no-ridge.h5",
            overwrite=True,
            head_options={"ridge": 0.0},
        )
        console.print("(with this backbone the digits would not need one)")
    except NumericalError as error:
        console.print(f"solve without one ends with:\n  error: {error}", highlight=False)
    console.print(
        "Every run above chose its ridge by generalised cross-validation, from the total."
    )


def draw(out: Path, folder: Path) -> list[Path]:
    """The partition and the confusion matrix of the first run."""
    return [
        afltool.plot("partition", folder / "02-clients.h5", out / "partition.png"),
        afltool.plot("confusion", folder / "06-metrics.json", out / "confusion.png"),
    ]


def report(runs: dict[str, tuple[Path, dict]], pictures: list[Path], seconds: float) -> int:
    """The closing tables; 1 if the three totals are not the same."""
    table = Table(title="AFL on handwritten digits: three partitions, one result")
    for column in ("partition", "clients", "rows a client", "top-1", "a client sends", "total"):
        table.add_column(column)
    for name, (folder, summary) in runs.items():
        rows = afltool.info(folder / "02-clients.h5")["rows_per_client"]
        table.add_row(
            name,
            str(summary["clients"]),
            f"{min(rows)} to {max(rows)}",
            f"{summary['top1']:.2%}",
            describe_upload(summary["bytes_per_client"][0]),
            summary["total_digest"][:16] + "…",
        )
    console.print(table)
    stages = Table(title="seconds per stage (the features are cached after the first run)")
    stages.add_column("stage")
    for name in runs:
        stages.add_column(name, justify="right")
    seconds_of = [
        {s["stage"]: s["seconds"] for s in summary["stages"]} for _, summary in runs.values()
    ]
    for stage in seconds_of[0]:
        cells = [f"{seconds[stage]:.2f}" if stage in seconds else "–" for seconds in seconds_of]
        stages.add_row(stage, *cells)
    console.print(stages)
    console.print("pictures: " + "  ".join(map(str, pictures)), soft_wrap=True, highlight=False)
    totals = {summary["total_digest"] for _, summary in runs.values()}
    heads = {summary["head_digest"] for _, summary in runs.values()}
    if len(totals) != 1 or len(heads) != 1:
        console.print(f"[bold red]the results differ: {len(totals)} totals, {len(heads)} heads")
        return 1
    console.print(
        f"[bold]The same total for all three partitions[/bold] ({seconds:.0f} s in all):\n"
        f"{totals.pop()}",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AflError as error:
        sys.exit(f"error: {error}")
