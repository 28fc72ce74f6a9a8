"""Sites that are apart: one agreement, one protocol, over any place of files.

`agreement` has what all agree on, `session` the protocol with its two sides, `commands` puts them
together. The place has session.json, and messages named by `keys.name_of`.
"""
