"""WebRTC: peer connections by aiortc, the media path around it by ourselves.

aiortc has ICE, DTLS, SRTP and SCTP. Its encoder, its decoder thread and its jitter buffer are not used: they cost four
times the CPU, and one lost packet leaves up to 280 ms of delay for good. In their place stand `downlink` (what is sent,
gated and encoded packet by packet), `pacer` (when), `uplink` (what was received, in order and without holes) and
`playback` (what of it sounds). `carrier` joins them to a session, `peer` to a connection; `seam` is the only file that
knows aiortc's inside.
"""
