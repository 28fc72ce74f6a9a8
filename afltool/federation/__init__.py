"""Sites that are apart: one agreement, one protocol, over any place of files.

`agreement` has what all agree on, `session` the protocol with its two sides, `commands` puts them
together. A folder of a party has head-R.h5 (the head before round R; the last one is solved) and
total-R.h5; the place has session.json and messages, named by `keys.name_of`. A site keeps the
approved agreement in its folder and compares it with the place's at each start.
"""
