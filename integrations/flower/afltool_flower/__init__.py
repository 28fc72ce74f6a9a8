"""Sessions of afltool, carried by Flower: its messages take the place of a shared folder.

A turn carries what is new in the server's folder to each node, and back. Signatures, masks and
checks are those of the session: Flower, like any place, needs no trust.
"""
