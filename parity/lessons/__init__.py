"""Problems, tapes and points, and the driver that runs an objective's definitions on them."""
