"""The families of microbenchmarks, a file each: keys, points, work, limits and table of one kind of measurement."""
