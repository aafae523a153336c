"""Programs that are copied into exported folders as they are; they need no lformer."""
