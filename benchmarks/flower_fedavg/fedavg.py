"""FedAvg of one softmax layer by Flower's own strategy; sites train by SGD in batches of 32."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()
BATCH = 32


class Reached(Exception):
    """The accuracy that was asked for."""


def rows(path: object) -> tuple[np.ndarray, np.ndarray]:
    found = np.load(str(path))
    return found["x"].astype(np.float32), found["y"].astype(int)


@client.train()
def train(message: Message, context: Context) -> Message:
    (x, y), how = rows(context.node_config["rows"]), message.content["config"]
    W, b = (array.copy() for array in message.content["arrays"].to_numpy_ndarrays())
    rng, wanted = np.random.default_rng(int(how["server-round"])), np.eye(len(b), dtype=W.dtype)[y]
    for _ in range(int(how["epochs"])):
        for batch in np.array_split(rng.permutation(len(x)), -(-len(x) // BATCH)):
            scores = x[batch] @ W + b
            p = np.exp(scores - scores.max(1, keepdims=True))
            step = (p / p.sum(1, keepdims=True) - wanted[batch]) * (float(how["rate"]) / len(batch))
            W -= x[batch].T @ step
            b -= step.sum(0)
    metrics = MetricRecord({"num-examples": len(x)})
    return Message(
        RecordDict({"arrays": ArrayRecord([W, b]), "metrics": metrics}), reply_to=message
    )


@server.main()
def main(grid: Grid, context: Context) -> None:
    o, begun = context.run_config, time.monotonic()
    x, y = rows(o["test"])
    classes = int(y.max()) + 1

    def evaluate(number: int, arrays: ArrayRecord) -> None:
        W, b = arrays.to_numpy_ndarrays()
        top1 = float(np.mean(np.argmax(x @ W + b, axis=1) == y))
        told = {"round": number, "top1": top1, "seconds": time.monotonic() - begun}
        told["bytes"] = number * (W.nbytes + b.nbytes)
        with Path(str(o["out"])).open("a") as file:
            file.write(f"{json.dumps(told)}\n")
        if top1 >= float(o["target"]):
            raise Reached

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    first = [np.zeros((x.shape[1], classes), np.float32), np.zeros(classes, np.float32)]
    config = ConfigRecord({"rate": float(o["rate"]), "epochs": int(o["epochs"])})
    with suppress(Reached):
        strategy.start(
            grid, ArrayRecord(first), int(o["rounds"]), train_config=config, evaluate_fn=evaluate
        )
