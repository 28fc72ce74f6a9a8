"""A SuperLink with TLS and node authentication and its SuperNodes, all on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

APP = Path(__file__).parents[1] / "integrations/flower"
TLS = (
    "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost "
    "-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout tls.key -out tls.crt"
)
# Unless the surroundings say otherwise: nothing is fetched or reported, and apps start at once.
SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Loopback:
    """Processes of one federation below a folder; all end with the block.

    ``programs``: the folder of Flower's commands.
    """

    def __init__(self, folder: Path, processes: ExitStack, programs: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.processes, self.port = folder.absolute(), processes, free_port()
        self.programs = programs
        self.env = {**SETTINGS, **os.environ, "FLWR_HOME": str(self.folder / "flwr-home")}
        self.env["PATH"] = f"{programs}:{self.env['PATH']}"  # the SuperLink starts flwr-serverapp
        self.run("openssl", *TLS.split())
        (self.folder / "flwr-home").mkdir(exist_ok=True)
        (self.folder / "flwr-home/config.toml").write_text(
            f'[superlink.trial]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.folder}/tls.crt"\n'
        )

    def run(self, *words: object) -> None:
        with (self.folder / "setup.log").open("a") as log:
            subprocess.run(
                list(map(str, words)), check=True, cwd=self.folder, env=self.env, stdout=log,
                stderr=log,
            )  # fmt: skip

    def start(self, name: str, *words: object) -> subprocess.Popen[bytes]:
        log = self.processes.enter_context((self.folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(
            list(map(str, words)), cwd=self.folder, env=self.env, stdout=log, stderr=log
        )
        self.processes.callback(process.wait)
        self.processes.callback(process.terminate)
        return process

    def superlink(self) -> subprocess.Popen[bytes]:
        process = self.start(
            "superlink", self.programs / "flower-superlink", "--enable-supernode-auth",
            "--host", "127.0.0.1", "--port", self.port, "--ssl-ca-certfile", "tls.crt",
            "--ssl-certfile", "tls.crt", "--ssl-keyfile", "tls.key", "--database", "state.db",
            "--disable-runtime-dependency-installation",
        )  # fmt: skip
        for _ in range(120):
            with socket.socket() as one:
                if not one.connect_ex(("127.0.0.1", self.port)):
                    return process
            time.sleep(0.5)
        raise TimeoutError(f"no SuperLink on port {self.port}; see {self.folder}/superlink.log")

    def supernode(self, name: str, config: dict[str, object]) -> subprocess.Popen[bytes]:
        key = self.folder / f"node-{name}"
        if not key.exists():
            self.run("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key)
            self.run(self.programs / "flwr", "supernode", "register", f"{key}.pub", "trial")
        return self.start(
            f"supernode-{name}", self.programs / "flower-supernode", "--host", "127.0.0.1",
            "--port", free_port(), "--superlink", f"127.0.0.1:{self.port}",
            "--root-certificates", "tls.crt", "--auth-supernode-private-key", key,
            "--node-config", _said(config),
        )  # fmt: skip

    def app(self, config: dict[str, object], app: Path = APP) -> subprocess.Popen[bytes]:
        """Run an app; the process ends with it."""
        run = ["run", app, "trial", "--stream", "--run-config", _said(config)]
        return self.start("run", self.programs / "flwr", *run)


def _said(config: dict[str, object]) -> str:
    return " ".join(
        f"{name}={value}" if isinstance(value, int | float) else f'{name}="{value}"'
        for name, value in config.items()
    )
