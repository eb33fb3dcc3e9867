"""What the registry, the zoo and a split tell about themselves: behind `methods`, `models` and `partition`."""
