"""The constant by which both front ends derive one seed from another."""

SPREAD = 0x9E3779B1  # 2**32 over the golden ratio: its multiples are far from each other (Knuth's multiplicative hashing)
