"""new: a site is killed at each of its writes, and two processes of it run at once.

A crash, a scheduler, cron: `join` ends at any point, or is started twice with one folder.

Shows: north is killed just before, or just after, each file that it makes in its folder and its
ledger gets its name, and is started again. Then a second process of north does all that it can at the moment
when the first one looks whether the place has a message of its name already, for each message.
Must hold: each session ends with the head of all rows; no name in the place ever has two contents;
no secret of a round stays in the folder; nobody is told of a backup.
"""

import hashlib

from base import FOUR, Ledger, Member, Place, Trial, of_sites, os, outcome, premise, run

hashlib.scrypt = lambda data, **_: hashlib.sha512(data).digest()  # codes are not the matter here
LINK = os.link


class Killed(BaseException):
    """The end of a process."""


class Twice(Place):
    """A place which a second process of the site uses while the first one looks at a name."""

    second, name, met = None, "", 0

    def read(self, name, most):
        if name == self.name and not self.met:
            self.met += 1
            outcome(self.second)
        return super().read(name, most)


def killing(number, after):
    """os.link, which is the end of north at one of its files."""
    seen = [0]

    def link(draft, path):
        own = "/north/" in str(path) and "/taken/" not in str(path) and not os.path.lexists(path)
        seen[0] += own
        if own and seen[0] == number and not after:
            raise Killed
        LINK(draft, path)
        if own and seen[0] == number:
            raise Killed

    return link


def play(trial):
    """Faults of a session that is played to its end, and how often north was killed."""
    texts, killed, faults = {}, 0, []
    for _ in range(40):
        said = {"office": trial.serve()}
        for name in FOUR:
            try:
                said[name] = outcome(lambda name=name: trial.join(name))[1]
            except Killed:
                killed += 1
                del trial.parties[name]
                said[name] = "killed"
        for path in trial.place.glob("*-north"):
            data = path.read_bytes()
            if data and texts.setdefault(path.name, data) != data:
                faults.append(f"two {path.name}")
        if set(said.values()) == {""}:
            break
    else:
        return [f"it does not end: {said}"], killed
    if trial.solved("north").digest() != trial.pooled():
        faults.append("another head")
    return faults + [p.name for p in trial.site("north").glob("secrets-*")], killed


def main(at):
    rows, broken, points, hit = of_sites(at / "rows", FOUR), [], 0, 1
    while hit:
        points += 1
        trial = Trial(at / f"{points}", rows, threshold=3, new_keys=at / "keys")
        trial.serve()
        trial.member("north")
        os.link = killing(points, after=points % 2 == 0)
        faults, hit = play(trial)
        os.link = LINK
        broken += [f"{points}: {fault}" for fault in faults]
    print(f"killed before or after each of {points - 1} files: {broken}")
    premise(points > 8, "there are files to write")
    for kind, number in (("hello", 0), ("sums", 1), ("seen", 1), ("shares", 1), ("done", 2)):
        trial = Trial(at / kind, rows, threshold=3, new_keys=at / "keys")
        trial.serve()
        first, url = trial.member("north"), str(trial.place)
        second = Member(Place(url), trial.site("north"), trial.agreed, trial.me("north"),
                        first.rows, Ledger(trial.state("north") / "ledger"))  # fmt: skip
        first.place = Twice(url)
        first.place.second, first.place.name = second.turn, trial.path(kind, number, "north").name
        faults, _ = play(trial)
        print(f"two processes at {kind}: {faults}, {trial.said('north')}")
        premise(first.place.met, "the second one was there")
        broken += [f"{kind}: {fault}" for fault in faults]
    if broken:
        return True, f"what a kill or a second process leaves: {broken}"
    return False, f"{points - 1} files, 5 messages: each session ends as if nothing had been"


if __name__ == "__main__":
    run(main)
