"""Where the order of bytes turns: what a client sends and receives until AFL's accuracy.

    python examples/where_bytes_turn.py OUT            half an hour

Writes OUT/bytes.csv, OUT/bytes.md (docs/decisions/bytes.md has that table) and OUT/bytes.png. Runs
are kept in OUT, so it can be stopped and gone on with.

Features are made: classes of three groups each, whose centres are normal in 64 dimensions, rows
around them with a deviation of --noise, times a normal matrix to d columns, and max(0, ·). Rows are
dealt to --clients by a Dirichlet distribution, α = 0.1. AFL, DeepAFL and SAFLe are whole; softmax,
FedAvg and FedDyn count up to the round that first has AFL's accuracy, or to their last.

Sent: of a head the clients' files (the mean of ten clients' or of three), of a rival float32.
Seconds are processor seconds: of all clients together, and of the server.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

import afltool

matplotlib.use("agg")
GROUPS, LATENT, TEST = 3, 64, 2000
MOST_UPDATES = 100_000  # rounds times classes of a rival: 1,000 classes take half a second a round
Options = dict[str, Any]
DEEP: Options = {"layers": 5, "width": 512}
HEADS: dict[str, tuple[str, Options]] = {
    "AFL": ("linear", {"ridge": "auto"}),
    "DeepAFL, paper's exchange": ("deepafl", {**DEEP, "full_gram": True}),
    "DeepAFL, incremental": ("deepafl", {**DEEP, "incremental": True}),
    "SAFLe": ("safle", {"experts": 64, "with_linear": True}),
    "softmax": ("softmax", {"each_round": True}),
}
# Rates: the best after 20 rounds at d = 512 and 100 classes, among 0.05 (the papers'), 0.2 and 0.5.
RIVALS: dict[str, tuple[str, Options]] = {
    "FedAvg": ("fedavg", {"lr": 0.2}),
    "FedDyn": ("feddyn", {"lr": 0.05}),
}
COLUMNS = {
    "d": "d", "classes": "classes", "method": "method", "top1": "top-1, %", "rounds": "rounds",
    "sent": "MB sent", "received": "MB received", "client_s": "clients, s", "server_s": "server, s",
}  # fmt: skip


def features(out: Path, dim: int, classes: int, rows: int, noise: float) -> list[Path]:
    """Training and test features of one recipe; seed 0."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((classes, GROUPS, LATENT))
    projection = rng.standard_normal((LATENT, dim)) / np.sqrt(LATENT)
    found = []
    for part, n in (("train", rows), ("test", TEST)):
        y, group = rng.integers(classes, size=n), rng.integers(GROUPS, size=n)
        rows_of = centres[y, group] + noise * rng.standard_normal((n, LATENT))
        X = np.maximum(rows_of @ projection, 0).astype(np.float32)
        names = out / f"{classes}.txt"
        names.write_text("".join(f"{number}\n" for number in range(classes)))
        raw = out / f"{part}-{dim}-{classes}.npz"
        np.savez(raw, x=X, y=y.astype(str))
        found.append(afltool.import_embeddings(raw, raw.with_suffix(".h5"), classes=names))
    return found


def of_head(folder: Path, files: list[Path], clients: int, head: str, given: Options) -> Options:
    """The rounds of a head: accuracy where it was measured, bytes and processor seconds."""
    config = afltool.RunConfig(
        train_features=files[0], test_features=files[1], clients=clients, alpha=0.1, head=head,
        keep_clients=clients < 20, threads=1, **given,
    )  # fmt: skip
    if not (folder / "summary.json").exists():  # again, its seconds would be those of looking
        afltool.run(config, folder)
    found = read(folder)
    spent = {
        part: [s["processor_seconds"] for s in found["stages"] if s["stage"].startswith(part)]
        for part in ("local-stats", "solve", "aggregate")
    }
    added = spent.pop("aggregate") or [0.0] * len(spent["solve"])  # where clients have files
    spent["solve"] = [sum(both) for both in zip(spent["solve"], added, strict=True)]
    rounds = [
        {
            "top1": one.get("top1"), "sent": sent["mean_file"], "received": sent["download"] or 0,
            "client_s": client, "server_s": server,
        }
        for one, sent, client, server in zip(
            found["rounds"] or [{}], found["bytes_per_client"], *spent.values(), strict=True
        )
    ]  # fmt: skip
    return {"top1": found["top1"], "rounds": rounds}


def of_rival(
    folder: Path, files: list[Path], clients: Path, method: str, given: Options
) -> Options:
    found = read(
        afltool.baseline(
            method, files[0], folder, partition=clients, test=files[1], settings=given, threads=1
        )
    )
    names = {"upload_bytes": "sent", "download_bytes": "received"}
    names |= {"gather_seconds": "client_s", "solve_seconds": "server_s", "top1": "top1"}
    rounds = [{new: one[old] for old, new in names.items()} for one in found["rounds"]]
    return {"top1": found["top1"], "rounds": rounds}


def row(method: str, found: Options, goal: float | None) -> Options:
    """Sums up to the first round that reaches the goal, or to the end."""
    rounds = found["rounds"]
    tops = [one["top1"] or 0.0 for one in rounds]
    reached = [n for n, top in enumerate(tops, 1) if goal is not None and top >= goal]
    last = reached[0] if reached else len(rounds)
    told = f"not reached in {last}" if goal is not None and not reached else str(last)
    sums = {
        name: list(accumulate(one[name] for one in rounds))[last - 1]
        for name in rounds[0]
        if name != "top1"
    }
    best = (
        found["top1"] if goal is None else tops[last - 1] if reached else max(*tops, found["top1"])
    )
    return {"method": method, "top1": 100 * best, "rounds": told, **sums}


def rows(a: argparse.Namespace) -> Iterator[Options]:
    for dim in a.dimensions:
        for classes in a.classes:
            files, goal = features(a.out, dim, classes, a.rows, a.noise), 0.0
            for method, (head, given) in HEADS.items():
                folder = a.out / f"{dim}-{classes}-{''.join(filter(str.isalnum, method))}"
                found = of_head(folder, files, a.clients, head, given)
                goal = found["top1"] if method == "AFL" else goal
                cut = goal if method == "softmax" else None
                yield {"d": dim, "classes": classes, **row(method, found, cut)}
                partition = folder / "02-clients.h5"
            for method, (name, rate) in RIVALS.items():
                given = {"rounds": min(a.rounds, MOST_UPDATES // classes), **rate}
                found = of_rival(a.out / f"{dim}-{classes}-{name}", files, partition, name, given)
                yield {"d": dim, "classes": classes, **row(method, found, goal)}


def read(folder: Path) -> Options:
    found: Options = json.loads((folder / "summary.json").read_text())
    return found


def markdown(table: pd.DataFrame) -> str:
    shown = table.assign(
        sent=table.sent / 1e6,
        received=table.received / 1e6,
        classes=table.classes.map("{:,}".format),
    )
    digits = {"top1": "{:.1f}", **dict.fromkeys(("sent", "received"), "{:.3g}")}
    digits |= dict.fromkeys(("client_s", "server_s"), "{:.2f}")
    for name, form in digits.items():
        shown[name] = shown[name].map(form.format)
    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS), *shown[list(COLUMNS)].values.tolist()]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def picture(table: pd.DataFrame, place: Path) -> None:
    """MB of one client by rounds of rivals, a panel for each width and number of classes."""
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 9})
    across = {"figsize": (7.2, 5.4), "sharex": True, "sharey": True, "squeeze": False}
    drawn, panels = plt.subplots(table.d.nunique(), table.classes.nunique(), **across)
    x = np.array([1, 500])
    for axes, ((dim, classes), part) in zip(
        panels.flat, table.groupby(["d", "classes"]), strict=True
    ):
        total = (part.sent + part.received).set_axis(part.method) / 1e6
        for at, method in enumerate(HEADS):
            axes.plot(x, [total[method]] * 2, f"C{at}", linestyle="-:"[at % 2], label=method)
        rounds = int(part.rounds[part.method == "FedAvg"].iloc[0].split()[-1])
        axes.plot(x, total["FedAvg"] / rounds * x, "k--", label="FedAvg, FedDyn")
        axes.plot(rounds, total["FedAvg"], "ko", markersize=4)
        axes.set(xscale="log", yscale="log", title=f"d = {dim:,}, {classes:,} classes")
        axes.grid(alpha=0.3)
    for axes in panels[-1]:
        axes.set_xlabel("rounds of FedAvg")
    drawn.supylabel("MB of one client, sent and received")
    drawn.legend(
        *panels.flat[0].get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False
    )
    drawn.tight_layout(rect=(0, 0.09, 1, 1))
    drawn.savefig(place, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[512, 1280])
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rows", type=int, default=10000, help="training rows")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--noise", type=float, default=1.3, help="deviation around a centre")
    parser.add_argument("--rounds", type=int, default=500, help="most rounds of FedAvg and FedDyn")
    a = parser.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    made = []
    for one in rows(a):
        made.append(one)
        print(*one.values(), flush=True)
    table = pd.DataFrame(made)
    table.to_csv(a.out / "bytes.csv", index=False)
    (a.out / "bytes.md").write_text(markdown(table))
    picture(table, a.out / "bytes.png")
    print(markdown(table))


if __name__ == "__main__":
    main()
