"""Tile IR with the extents of one launch -> a core program at the buffer level."""
