"""Sessions of afltool, carried by Flower: its messages take the place of a shared folder.

`afltool session serve` and `join` do the work, each with a folder of its own in the place of one
that all reach. A turn carries what is new in the server's folder to each node, and back.
Signatures, masks and checks are those of the session: Flower, like any place, needs no trust.
"""
