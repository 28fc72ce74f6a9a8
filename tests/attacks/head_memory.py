"""adapted: letters with arrays in files → one file a message, whose size the reader knows.

Malicious server (or member): its files take gigabytes at every site.

Shows: a session of the linear head for 6 features. In the place lie, under the names of messages,
files of 320 MB with the server's true signature (in a folder sparse files, which cost nothing).
Nothing larger than what a head of this session may hold is to be read into memory. The site's peak
is measured with that of the honest head beside it.
Must hold: names, types and shapes of a head's arrays follow from the session; nothing larger is
read.
"""

from base import MB, SITES, Trial, hashlib, of_sites, os, premise, run, subprocess, sys

from afltool.federation.keys import DOMAIN, Box

SIZE = 320 * MB
CHILD = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "afltool", *sys.argv[1:]], capture_output=True, text=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.returncode)
print((done.stdout + done.stderr)[-400:])
"""


def peak(trial, rows):
    words = ["session", "join", trial.place, "--key", trial.keys / "north", "--data", rows,
             "--once", "-o", trial.site("north")]  # fmt: skip
    env = {**os.environ, "AFLTOOL_STATE": str(trial.state("north"))}
    done = subprocess.run([sys.executable, "-c", CHILD, *map(str, words)], capture_output=True,
                          text=True, timeout=100, env=env)  # fmt: skip
    first, _, said = done.stdout.partition("\n")
    size, code = map(int, first.split())
    return size / 1024, code, " ".join(said.split())


def huge(trial, kind, number, sender):
    """A sparse file of 320 MB whose header is signed, with the hash of all that follows."""
    found, block = hashlib.sha256(), bytes(4 * MB)
    for _ in range(SIZE // len(block)):
        found.update(block)
    me = trial.me(sender)
    header = Box(trial.agreed.digest, me)._header(kind, number, sender, found.hexdigest())
    with trial.path(kind, number, sender).open("wb") as file:
        file.write(header + b"\n" + me.signing.sign(DOMAIN + header))
        file.truncate(file.tell() + SIZE)


def main(at):
    rows = of_sites(at / "rows")
    trial = Trial(at, rows)
    trial.turn()
    trial.serve()
    for _ in range(2):
        for name in SITES:
            trial.join(name)
        trial.server.close(1)
    premise(trial.path("shares", 1, "north").exists(), "north waits for the head")
    premise(not trial.path("head", 2, "office").exists(), "the server has not solved")
    usual, code, said = peak(trial, rows["north"])
    premise(code == 0 and "waiting" in said, f"north waits for the head: {said}")
    print(f"without a head: peak {usual:.0f} MB; {said[-80:]}")
    worst = {}
    places = {"the head": ("head", 2, "office"), "the sums of south": ("sums", 1, "south"),
              "the shares of west": ("shares", 1, "west"), "an end": ("done", 2, "office"),
              "a close": ("close", 1, "office")}  # fmt: skip
    for what, (kind, number, sender) in places.items():
        (trial.site("north") / "taken" / f"{number:03d}-{kind}-{sender}").unlink(missing_ok=True)
        if kind in ("sums", "shares", "close"):
            (trial.site("north") / "total-1.h5").unlink(missing_ok=True)
        huge(trial, kind, number, sender)
        worst[what], code, said = peak(trial, rows["north"])
        print(f"{what} of 320 MB: peak {worst[what]:.0f} MB, ended with {code}: {said[-130:]}")
        premise("Traceback" not in said, "no traceback")
    most = max(worst.values())
    if most > usual + 200:
        return True, f"a file of the server takes {most:.0f} MB at a site, {usual:.0f} MB usually"
    return False, f"at most {most:.0f} MB, {usual:.0f} MB usually"


if __name__ == "__main__":
    run(main)
