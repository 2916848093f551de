"""The grid in a browser: a small web server that is a client of the broker, and one page.

It is a process of its own, so whatever browsers do to it takes nothing from the broker's loop. It only asks, and sees
what its key may see. `watch` asks the broker, `access` decides who is let in, `server` answers browsers,
`metrics` is for Prometheus, and `page/` is what a browser loads.
"""
