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

# files FOLDER FIRST LAST: the parts of these numbers, in the array "files".
files() {
    local i
    files=()
    for i in $(seq "$2" "$3"); do files+=("$1/$i.h5"); done
}

