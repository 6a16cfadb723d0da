"""What breaks while people talk: processes, disks, clocks, networks, clients. `python -m tests.chaos --help`.

Each scene asserts the same four things: no sample of what was cut off is heard afterwards, the conversation is whole,
whoever is concerned is told so by name, and the neighbours notice nothing.
"""
