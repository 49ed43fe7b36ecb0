"""What the seeds of both front ends have in common."""

SPREAD = 0x9E3779B1  # 2**32 over the golden ratio: multiples of it are far from each other (Knuth's multiplicative hashing)
