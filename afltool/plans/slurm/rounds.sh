# of_round N: the files of round N of a head (most heads have one round).
of_round() {
    round=$1 suffix= head=$HEAD
    [ "$1" -lt 2 ] || suffix=-$1 head=$RUN/§{second}
    [ "$1" -lt 3 ] || head=$RUN/§{before}
    total=$RUN/§{total}
    held_out=$RUN/§{held_out}
    solved=$RUN/§{solved}
    parts=$RUN/§{parts}
}

