"""Addresses that were signed for a place on S3: a site needs neither credentials there nor a port.

The coordinator, who has credentials, hands out one file: a form that sends to the place, and the
address of a list of what lies there, each with an address that reads it. `serve` writes that list
anew in each turn. The list needs no more trust than the place: what it leads to is checked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from ..errors import CorruptFileError, InputError, UsageError
from ..files.atomic import write_bytes
from ..files.schema import mismatch, whole
from ..inputs import parsed_json, read_text
from ..progress import log
from ..values.text import json_text
from .depot import CHUNK, Depot, bounded

ENDING, INDEX = ".urls", "index.json"
SECONDS = 7 * 86400  # that an address is good for; S3 signs for no longer
WAIT = 60  # seconds for an answer
MOST_LISTED = 64 << 20  # bytes of the list, about a thousand a file
PATTERN = {"index": str, "send": str, "fields": dict, "prefix": str}
LISTED = {"name": str, "url": str, "bytes": whole}


def place_at(url: str) -> Depot:
    """The place at an address that fsspec knows, or that a file of signed addresses leads to."""
    return UrlDepot(url) if url.endswith(ENDING) else Depot(url)


def session_urls(url: str, out: Path, *, overwrite: bool = False) -> Path:
    """Write the file NAME.urls with which members join the session at ``url`` on S3."""
    depot = Depot(url)
    if out.suffix != ENDING:
        raise UsageError(f"-o {out}: expected a name that ends with {ENDING}, as join needs it")
    if depot.size("session.json") is None:
        raise InputError(f"{url} holds no session: afltool session serve {url} --once first")
    with depot.reached() as (fs, root):
        if not hasattr(fs, "get_s3"):
            raise UsageError(f"{url}: only S3 signs addresses (s3://…); give members credentials")
        bucket, _, path = root.partition("/")
        key, rule = f"{path}/${{filename}}", ["starts-with", "$key", f"{path}/"]

        async def signed() -> Any:
            client = await fs.get_s3(bucket)
            return await client.generate_presigned_post(bucket, key, None, [rule], SECONDS)

        form = asyncio.run_coroutine_threadsafe(signed(), fs.loop).result(WAIT)
        index = fs.sign(f"{root}/{INDEX}", expiration=SECONDS)
    refresh(depot, begin=True)
    addresses = {
        "index": index,
        "send": form["url"],
        "fields": form["fields"],
        "prefix": f"{path}/",
    }
    write_bytes(json_text(addresses, indent=1).encode(), out, overwrite).chmod(0o600)
    log.info("session urls: whoever has %s may read and write at %s, for seven days", out, url)
    return out


def refresh(depot: Depot, begin: bool = False) -> None:
    """Write the list of what lies in the place, if there is one or with ``begin``."""
    if not begin and depot.size(INDEX) is None:
        return
    with depot.reached() as (fs, root):
        fs.invalidate_cache()
        there = {path: one["size"] for path, one in fs.find(root, detail=True).items()}
        addresses = [fs.sign(path, expiration=SECONDS) for path in there]
    names = [path.removeprefix(f"{root}/") for path in there]
    each = zip(names, addresses, there.values(), strict=True)
    depot.send(json_text([dict(zip(LISTED, one, strict=True)) for one in each]).encode(), INDEX)


class UrlDepot(Depot):
    """The place that a file of signed addresses leads to; what it lists is as old as a turn of the
    server, so what was sent since then is remembered."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        what = "a file of session urls"
        self.to: dict[str, Any] = parsed_json(read_text(Path(url), what, 1 << 20), url, what)
        if wrong := mismatch(self.to, PATTERN):
            raise CorruptFileError(f"{url} is not {what}: {wrong}")
        self._listed, self._until, self._sent = b"", 0.0, dict[str, bytes]()

    def read(self, name: str, most: int) -> bytes:
        return self._sent[name] if name in self._sent else super().read(name, most)

    def chunks(self, name: str) -> Iterator[bytes]:
        yield from self._got(self._list()[name]["url"])

    def size(self, name: str) -> int | None:
        size = self._list().get(name, {}).get("bytes")
        return len(self._sent[name]) if name in self._sent else size

    def send(self, data: Path | bytes, name: str) -> None:
        data = data if isinstance(data, bytes) else data.read_bytes()
        edge, fields = token_hex(16), {**self.to["fields"], "key": self.to["prefix"] + name}
        head = f'--{edge}\r\nContent-Disposition: form-data; name="'
        form = "".join(f'{head}{key}"\r\n\r\n{value}\r\n' for key, value in fields.items())
        form += f'{head}file"; filename="file"\r\n\r\n'
        body = form.encode() + data + f"\r\n--{edge}--\r\n".encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={edge}"}
        with self.reached(), urlopen(Request(self.to["send"], body, kind), timeout=WAIT):
            self._sent[name] = data

    def remove(self, name: str) -> None:
        """Empty it: signed addresses remove nothing, and its sender sends it again all the same."""
        self.send(b"", name)

    def _list(self) -> dict[str, dict[str, Any]]:
        """What lies there by name, fetched once in a second."""
        if time.monotonic() >= self._until:
            where = f"the list of {self.url}"
            data = b"".join(bounded(self._got(self.to["index"]), MOST_LISTED))
            if len(data) > MOST_LISTED:
                raise CorruptFileError(f"{where} has more than {MOST_LISTED >> 20} MB")
            listed: list[dict[str, Any]] = parsed_json(data, where)
            if wrong := mismatch(listed, [LISTED]):
                raise CorruptFileError(f"{where} is damaged: {wrong}")
            if data != self._listed:
                self._sent.clear()
            self._listed, self._until = data, time.monotonic() + 1
            self._known = {one["name"]: one for one in listed}
        return self._known

    def _got(self, url: str) -> Iterator[bytes]:
        """What lies at a signed address, which is of the place and of nothing else."""
        ours, theirs = urlsplit(self.to["index"]), urlsplit(url)
        if theirs[:2] != ours[:2] or ours.scheme not in ("http", "https"):
            raise CorruptFileError(f"the list of {self.url} leads to {url[:80]!r}, another place")
        with self.reached(), urlopen(url, timeout=WAIT) as answer:
            while data := answer.read(CHUNK):
                yield data

    def _open(self) -> tuple[Any, str]:
        return self, ""
