"""The simulator: many synthetic runs with the decision functions of a live experiment."""
