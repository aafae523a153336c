"""Do the defaults win? Estimators as they come beside what a user would try instead, on small sets and real ones."""
