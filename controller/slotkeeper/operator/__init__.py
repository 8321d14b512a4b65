"""Keeps the stored schedules equal to the JobSchedules of a cluster, and writes their status back."""
