"""adapted: plain statistics → `signed`, which the server reads; `mask offer` → `join`, masked.

Malicious server: sites approve a digest of what they never see.

Shows: four of five members are the server's, and statistics leave readable by it. `join` without
--approve has to show members, protection, threshold, minimum rows and rounds; with --approve sums
that the server reads must not leave without a word.
Must hold: `join` without --approve prints all these; a protection below masked is refused at the
site until it gives --allow signed. The code to compare is in neither.
"""

import re

from base import Trial, afl, of_sites, premise, run

NAMES = ("north", "p1", "p2", "p3", "p4")


def lacking(text, wanted):
    return [what for what, pattern in wanted.items() if not re.search(pattern, text, re.I)]


def main(at):
    rows = of_sites(at / "rows", NAMES)
    trial = Trial(at, rows, protection="signed", min_rows=7, threshold=3)
    trial.serve()
    base = ("session", "join", trial.place, "--key", trial.keys / "north", "--data", rows["north"],
            "--once", "-o", at / "north")  # fmt: skip
    shown = afl(*base, ok=False)
    premise(shown.returncode == 2, f"join without --approve is refused: {shown.said}")
    wanted = {"members": "p1(.|\n)*p2(.|\n)*p3(.|\n)*p4", "protection": r"\bsigned\b.*server reads",
              "threshold": r"\b3 of 5\b", "minimum rows": r"\b7\b", "rounds": r"round",
              "who is new": r"p1 is new"}  # fmt: skip
    text = shown.said.replace(str(at), "")
    lacks = lacking(text, wanted)
    print("join without --approve says:", " ".join(text.split())[:600])
    print("it does not say:", ", ".join(lacks) or "nothing of this is lacking")
    code = trial.agreed.code.replace(" ", "") in re.sub("[ -]", "", text)

    sent = afl(*base, "--approve", trial.agreed.code, ok=False)
    left = sorted(p.name for p in trial.place.glob("*-north"))
    print(
        f"join --approve ended with {sent.returncode}: {sent.said.strip()[-160:]}; north sent {left}"
    )
    wrong = afl(*base, "--approve", trial.agreed.code, "--allow", "masked", ok=False)
    left = left or sorted(p.name for p in trial.place.glob("*-north")) or not wrong.returncode
    allowed = afl(*base, "--approve", trial.agreed.code, "--allow", "signed", ok=False)
    premise(allowed.returncode == 0, f"with --allow signed north takes part: {allowed.said}")

    masked = Trial(at, rows, place="second", min_rows=7, threshold=3)
    masked.serve()
    offered = afl("session", "join", masked.place, "--key", masked.keys / "north", "--data",
                  rows["north"], "-o", at / "north-2", ok=False)  # fmt: skip
    del wanted["who is new"]  # they were met
    text = offered.said.replace(str(at), "")
    lacks_offer = lacking(text, {**wanted, "protection": r"\bmasked\b.*\b3 sites\b"})
    print("join of the masked one does not say:", ", ".join(lacks_offer) or "nothing is lacking")
    code |= masked.agreed.code.replace(" ", "") in re.sub("[ -]", "", text)
    nothing = not list(masked.place.glob("*-north"))
    if left or lacks or lacks_offer or code or not nothing:
        return True, f"not shown: {lacks + lacks_offer}; sent without --allow: {left}; code: {code}"
    return False, "a site sees what it approves, and sums that are read need --allow signed"


if __name__ == "__main__":
    run(main)
