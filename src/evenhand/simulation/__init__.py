"""Body one: the simulator. Many synthetic runs of the same brain that a live experiment uses."""
