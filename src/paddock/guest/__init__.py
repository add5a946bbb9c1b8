"""The host's side of the guest protocol (docs/GUEST_PROTOCOL.md), and the guest's source and build.

    wire     frames and payloads as values; no I/O
    frames   a socket that carries frames
    channel  one exec on a link: Channel and Sink
    link     one live link to a guest: Guest
    dial     takes back a guest that lost its link
    process  whole built-in calls over a link: collect, Stream
    build    compiles the guest

The guest is untrusted; nothing in this room believes it.
"""
