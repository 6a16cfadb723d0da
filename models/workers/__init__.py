"""Engines in processes of their own, one per device, behind the same port as in this process.

`engine` is the port, `supervisor` the life of the worker behind it, `host` the other end; both speak `messages` and
check envelopes at `borders`. How messages travel is a `Link`: `process` has the one for a process of this machine.
"""
