"""A small speech codec of our own: 24 kHz mono, 12.5 frames a second, up to 16 codebooks of 1024.

`model` says how it works, `stream` is what a server uses, `checkpoint` reads and writes weights; `data`, `train` and
`evaluate` are commands. Importing this package imports no torch; its modules do.
"""
