"""Gates evaluated on past pairs and on simulated ones."""
