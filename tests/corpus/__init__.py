"""Journals of every format that was ever released, which must open and mean what they meant."""
