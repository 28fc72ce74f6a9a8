"""adapted: presigned forms are gone → whoever may write into the place, a folder and S3 (moto).

Whoever may write into the place: fills it; a party reads, or keeps, files of any size and name.

Shows: (1) `session urls` handed out forms that took 40 MB under any name; nothing of the kind is
left: no command makes them, and a file of them is no place. (2) Who may write puts 40 MB under the
name of every message of the session before it is sent, and under names that are none.
Must hold: nothing larger than the message that is waited for is read, whole or in part; the honest
parties overwrite it, and the session ends with the right head. The same over S3.
"""

import socket
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from base import (
    MB,
    SITES,
    Place,
    Trial,
    afl,
    name_of,
    of_sites,
    os,
    premise,
    run,
    subprocess,
    sys,
    time,
)

SIZE = 40 * MB
ODD = (
    "anything",
    "session.json.partial",
    "999-sums-north",
    "001-sums-",
    "001-sums-eve",
    "-",
    "001-x-north",
)


class Counting(Place):
    """A place that counts what is read of it."""

    def __init__(self, url, taken):
        super().__init__(url)
        self.taken, self.most = taken, 0

    def read(self, name, most):
        data = super().read(name, most)
        self.most = max(self.most, len(data or b""))
        return data


def fill(place, names):
    data = bytes(SIZE)
    for name in names:
        place.write(name, data)


def messages(trial):
    for name in SITES:
        yield name_of("hello", 0, name)
        for kind in ("sums", "seen", "shares"):
            yield name_of(kind, 1, name)
        yield name_of("done", 2, name)
    for kind, number in (("close", 0), ("close", 1), ("head", 2), ("done", 2), ("key", 1)):
        yield name_of(kind, number, "office")


def play(trial, url):
    """The most that anybody has read at once, and whether all have the right head."""
    place = Counting(url, None)
    fill(place, [*messages(trial), *ODD])
    place.most = 0
    for name in ("office", *SITES):
        party = trial.server if name == "office" else trial.member(name)
        party.place = place
    over = trial.play()
    right = over and {trial.solved(n).digest() for n in ("office", *SITES)} == {trial.pooled()}
    sizes = [place.size(n) for n in ODD]
    return place.most, right, sizes


def main(at):
    there = afl("session", "--help", ok=False)
    premise(there.returncode == 0 and "join" in there.said, "the commands of sessions are shown")
    forms = "urls" in there.said
    (at / "trial.urls").write_text("{}")
    rows = of_sites(at / "rows")
    trial = Trial(at, rows)
    trial.serve()
    done = afl("session", "join", at / "trial.urls", "--key", trial.keys / "north", "--data",
               rows["north"], "--once", "-o", at / "north", ok=False)  # fmt: skip
    print("a file as a place:", done.returncode, done.said.strip()[-120:])
    premise(done.returncode != 0, "it is no place")
    most, right, _ = play(trial, str(trial.place))
    print(f"over a folder: at most {most:,} bytes were read at once; the right head: {right}")

    import moto  # noqa: F401  (without both an ERROR: the premise is not met)
    import s3fs  # noqa: F401
    from fsspec.config import conf, set_conf_env

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y",
                   "AWS_DEFAULT_REGION": "us-east-1", "FSSPEC_S3_ENDPOINT_URL": url,
                   "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip
    set_conf_env(conf)
    s3 = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        for _ in range(400):
            try:
                urlopen(url, timeout=1).close()
                break
            except HTTPError:
                break
            except (URLError, OSError):
                time.sleep(0.1)
        urlopen(Request(f"{url}/bucket", method="PUT"), timeout=10).close()
        second = Trial(at / "s3", rows)
        second.serve()
        place = Place("s3://bucket/trial")
        for path in second.place.iterdir():
            place.write(path.name, path.read_bytes())
        most_s3, right_s3, _ = play(second, "s3://bucket/trial")
        print(f"over S3: at most {most_s3:,} bytes were read at once; the right head: {right_s3}")
    finally:
        s3.terminate()
        s3.wait(10)
    if forms or not (right and right_s3) or max(most, most_s3) > MB:
        return (
            True,
            f"forms: {forms}; a file of {max(most, most_s3):,} bytes is read; {right}, {right_s3}",
        )
    return False, "there are no presigned forms; what is too large is never read, and overwritten"


if __name__ == "__main__":
    run(main)
