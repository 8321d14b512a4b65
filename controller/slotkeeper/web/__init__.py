"""The dashboard: pages for people and a JSON API of the same data, over HTTP on a loopback address.

Only reads, and only what may be shown to whoever reaches the port: no payloads, no texts of errors. It decides nothing,
and no other room needs it. ``listen`` has the address, ``server`` the Dashboard; nothing is imported here, because the
command line needs the first alone.
"""
