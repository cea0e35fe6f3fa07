"""HTTP/2 as a server speaks it, without I/O: bytes in, bytes and events out."""
