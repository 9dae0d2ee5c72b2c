"""Training loops as users write them: several models, accumulation, freezing on the way."""
