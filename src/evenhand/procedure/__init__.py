"""Sampling and stopping rules, shared by the simulator and the live experiment."""
