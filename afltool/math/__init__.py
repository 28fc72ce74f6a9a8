"""Arrays in, arrays out: products, fixed point, triangles, ridge, the pairwise law. No I/O."""
