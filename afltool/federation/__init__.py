"""Sites that are apart: one agreement, one protocol, over any place of files.

What commands and carriers build on:

    keys.new(name, folder, passphrase) -> Path      keys.load(path, passphrase) -> Keys
    keys.load_public(path) -> Party

    agreement.Agreement(members=, server=, head=compute.described(head), space=, classes=, …)
        .digest  .code (for the telephone alone)  `words.lines`: all terms in words
        .check_approved(code, allowed)  Agreement.parse(bytes)  .text  .write(path)
    agreement.usual_threshold(n)    agreement.Consent.sign(old.digest, keys): who leaves signs it
    compute.first_head(agreed)      refuses another first head, and so other phases

    rows.SiteRows.of_files(agreed, train, test), .of_arrays(X, y, X_test, y_test)
    ledger.Ledger(folder, again)    .spent(): Σ ρ of the sessions with noise
    place.Place(url), or any `place.Carrier`: read(name, most), size(name), write(name, data)

    member.Member(place, folder, agreed, keys, rows, ledger)
    server.Server(place, folder, agreed, keys)      .deadline: seconds, or None
        .turn() -> str      what is waited for in words, '' at the end     .run(poll, report)
        .known(), .head(round), .task(round), .total(round), .scale()      .certificate()

A folder has head-R.h5 (the head before round R; the last one is solved) and total-R.h5; the place
has session.json (`session.SESSION`) and messages, named by `envelope.name_of`. A site keeps the
approved agreement in its folder and compares it with the place's before each start.
"""
