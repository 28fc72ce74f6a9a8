"""adapted: letters and sealed files → messages; three of four have to stay, for masks need three.

Malicious member: stops `serve` for ever with one message.

Shows: west sends, each in a session of its own, (1) a file of 10^12 bytes, (2) numbers other than
those whose hash it signed, (3) a header that says more, and an empty file, a folder, a pipe, a link,
numbers of another length, an offer whose key is of small order, or signs for another round. The server might
accept it or break down over it, in each turn anew; east, north and south, who are enough for the
threshold, would never get a head.
Must hold: everything is checked when it arrives, the sender is named, the others go on.
"""

from base import FOUR, Trial, canonical, heard, json, of_sites, os, premise, run, shutil

from afltool.federation.keys import DOMAIN
from afltool.federation.masking import offer_size


def claims(trial, good):
    with trial.path("sums", 1, "west").open("wb") as file:
        file.write(good[:200])
        file.truncate(10**12)


def other_numbers(trial, good):
    data = bytearray(good)
    data[-5] ^= 1
    trial.path("sums", 1, "west").write_bytes(data)


def held_out(trial, good):
    me = trial.me("west")
    body = good.partition(b"\n")[2][64:]
    sha = trial.box("west")._header("sums", 1, "west", "")
    header = canonical([*json.loads(sha)[:4], "0" * 64, "held_out"])
    trial.path("sums", 1, "west").write_bytes(
        header + b"\n" + me.signing.sign(DOMAIN + header) + body
    )


def no_header(trial, good):
    trial.raw("west", "sums", 1, b"", header=b"[" * 3000)


def empty_body(trial, good):
    trial.raw("west", "sums", 1, b"")


def shorter(trial, good):
    trial.post("west", "sums", 1, b"x" * 80)


def small_order(trial, good):
    size = 8 * trial.member("west").layout(1).size
    trial.post("west", "sums", 1, bytes(size) + bytes(offer_size(trial.agreed)))


def another_round(trial, good):
    shutil.copy(trial.path("hello", 0, "west"), trial.path("sums", 1, "west"))


def a_folder(trial, good):
    trial.path("sums", 1, "west").mkdir()


def a_pipe(trial, good):
    os.mkfifo(trial.path("sums", 1, "west"))


def a_link(trial, good):
    trial.path("sums", 1, "west").symlink_to("/dev/zero")


def nothing(trial, good):
    pass


def goes_on(at, rows, attack):
    """Whether the others get their head in spite of west, and whether west is named."""
    trial = Trial(at, rows, threshold=3)
    trial.turn()
    trial.serve()
    trial.join("west")  # its own sums are replaced below
    path = trial.path("sums", 1, "west")
    good = path.read_bytes()
    path.unlink()
    attack(trial, good)
    errors, said = [], []
    for _ in range(5):
        for who in ("office", "east", "north", "south"):
            try:
                with heard() as lines:
                    trial.serve(deadline=0.0) if who == "office" else trial.join(who)
            except Exception as error:  # what else than an error of the program is worse
                errors.append(f"{who}: {type(error).__name__}: {error}")
            said += lines
    named = any("'west'" in line and "not there" in line for line in said)
    over = all((trial.site(n) / "head-2.h5").exists() for n in ("east", "north", "south"))
    right = over and trial.solved("north").digest() == trial.pooled("east", "north", "south")
    return right, named, errors


def main(at):
    rows, broken = of_sites(at / "rows", FOUR), []
    over, _, errors = goes_on(at / "without", rows, nothing)
    premise(over and not errors, f"without a file of west the others get their head: {errors[:1]}")
    attacks = (claims, other_numbers, held_out, no_header, empty_body, shorter, small_order,
               another_round, a_folder, a_pipe, a_link)  # fmt: skip
    for attack in attacks:
        over, named, errors = goes_on(at / attack.__name__, rows, attack)
        print(f"{attack.__name__}: the others get their head: {over}; west is named: {named}; "
              f"errors in {len(errors)} turns {errors[:1]}"[:420])  # fmt: skip
        if not over or errors or not named:
            broken.append(attack.__name__)
    if broken:
        return True, f"one member stops the session, or is not named: {', '.join(broken)}"
    return False, "what does not fit is refused when it arrives, and the others go on"


if __name__ == "__main__":
    run(main)
