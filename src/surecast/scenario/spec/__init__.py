"""The fields of a scenario file, as typed models with a sentence under every field."""
