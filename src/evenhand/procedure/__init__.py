"""How to sample, when to stop: the brain that the simulator and the live experiment share."""
