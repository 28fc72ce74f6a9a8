"""new: the shared storage is, or holds, a site's own folder.

Whoever may write into the place: puts a session.json there, which a site then takes for the one that
it has approved.

Shows: what a site has approved lies in its folder as session.json, and a second `join` asks for no
code. Where the folder of -o is the place itself, or lies in it, anybody can put that file there. The
place is given in ten ways: as a path, relative, over a link, with a '.', as file://, as local://,
as local:, with '~', and with the folder below it.
Must hold: nothing is sent, and no code is printed.
"""

from base import Trial, afl, of_sites, os, premise, run


def main(at):
    rows = of_sites(at / "rows")
    trial = Trial(at, rows)
    trial.serve()
    place = trial.place
    inner = place / "north"
    inner.mkdir()
    (inner / "session.json").write_bytes(trial.agreed.text)
    (at / "link").symlink_to(place)
    short = place.relative_to(at)
    ways = {
        "path": (place, place), "relative": (short, place), "link": (at / "link", place),
        "dot": (f"{place}/.", place), "file": (f"file://{place}", place),
        "local": (f"local://{short}", place), "colon": (f"local:{place}", place), "tilde": (f"~/{short}", place),
        "below": (place, inner), "below, file": (f"file://{place}", inner),
    }  # fmt: skip
    broken = []
    for what, (url, out) in ways.items():
        done = afl("session", "join", url, "--key", trial.keys / "north", "--data", rows["north"],
                   "--once", "-o", out, ok=False, HOME=str(at))  # fmt: skip
        sent = trial.path("hello", 0, "north").exists()
        print(f"{what}: {done.returncode} {done.said.strip()[-90:]}; sent: {sent}")
        if sent or done.returncode != 2 or trial.agreed.code in done.said:
            broken.append(what)
            trial.path("hello", 0, "north").unlink(missing_ok=True)
    own = at / "mine"
    done = afl("session", "join", place, "--key", trial.keys / "north", "--data", rows["north"],
               "--once", "--approve", trial.agreed.code, "-o", own)  # fmt: skip
    premise(trial.path("hello", 0, "north").exists(), f"with a folder of its own: {done.said}")
    premise((own / "session.json").exists() and os.getcwd() == str(at), "it was approved")
    if broken:
        return True, f"sent without an approval: {broken}"
    return False, f"{len(ways)} ways to give the place as one's own folder are refused"


if __name__ == "__main__":
    run(main)
