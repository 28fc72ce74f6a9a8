"""adapted: letters → messages; nobody can be away from a round of the same rows, so south is slow.

The place: loses a message of an earlier round, which has to be sent again.

Shows: DeepAFL of three rounds. (1) After the first round the place loses north's sums of round 1,
before west has read them; north takes its turns. (2) The place loses the server's head of round 2
before south has read it. (3) It loses everything, once in each round.
Must hold: everybody looks at its own messages in each turn, and sends again what is not there; all
come to the end, with the right head, also with --once.
"""

from base import SITES, Trial, heard, of_sites, premise, run

HEAD = {"head": "deepafl", "options": {"layers": 1, "width": 8, "compute": "fixed"}}


def of_member(at, anew):
    trial = Trial(at, of_sites(at / "rows"), **HEAD)
    trial.turn()
    trial.serve()
    for name in SITES:
        trial.join(name)
    trial.server.close(1)
    for name in ("west", "north", "south", "office", "north", "south"):
        trial.serve() if name == "office" else trial.join(name)
    premise(
        trial.server.newest_round() == 2 and trial.member("north").newest_round() == 2, "they go on"
    )
    premise(not (trial.site("west") / "total-1.h5").exists(), "west has not read all sums")
    trial.path("sums", 1, "north").unlink()
    with heard() as lines:
        over = turns(trial, anew)
    waits = [line for line in lines if "the sums of 'north'" in line]
    return trial, over, waits[:1]


def of_server(at, anew):
    trial = Trial(at, of_sites(at / "rows"), **HEAD)
    while not trial.path("head", 2, "office").exists():
        trial.serve()
        for name in SITES:
            trial.join(name)
            if trial.path("head", 2, "office").exists():
                break
    for name in ("north", "west"):
        trial.join(name)
    trial.path("head", 2, "office").unlink()
    trial.parties.pop("south", None)
    return trial, turns(trial, anew), []


def of_all(at, anew):
    trial = Trial(at, of_sites(at / "rows"), **HEAD)
    lost = set()
    for _ in range(60):
        trial.turn()
        if trial.server.newest_round() not in lost:
            lost.add(trial.server.newest_round())
            for path in trial.place.iterdir():
                path.unlink()
    premise(len(lost) == 4, f"everything was lost in each round: {lost}")
    return trial, turns(trial, anew), []


def turns(trial, anew):
    said = {}
    for _ in range(30):
        if anew:
            trial.parties.clear()
        said = trial.turn()
        if set(said.values()) == {""}:
            return True
    print("   at the end they wait for", said)
    return False


def main(at):
    broken = []
    for what, play in (("north's sums of round 1", of_member), ("the server's head", of_server),
                       ("everything", of_all)):  # fmt: skip
        for anew in (False, True) if play is not of_all else (False,):
            trial, over, waits = play(at / f"{play.__name__}-{anew}", anew)
            right = over and {trial.solved(n).digest() for n in SITES} == {trial.pooled()}
            print(
                f"{what} lost{', with --once' if anew else ''}: the end: {over}, right: {right} {waits}"
            )
            if not right:
                broken.append(what)
    if broken:
        return True, f"{' and '.join(broken)}: lost once, and never sent again"
    return False, "what was lost is sent again"


if __name__ == "__main__":
    run(main)
