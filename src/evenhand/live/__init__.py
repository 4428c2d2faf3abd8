"""Live experiments: event log, tickets, storage, status, audit, export and transfer.

The state of an experiment is a fold over its event log. Outcomes may arrive late, twice, wrong or never.
"""
