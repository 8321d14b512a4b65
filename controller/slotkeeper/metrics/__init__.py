"""Probes and Prometheus metrics of controller and worker, and the numbers that scale workers.

Shows what others count and what the database knows; counts nothing itself and changes nothing. A scrape asks the
database at most once in a few seconds, and never waits long for it.
"""
