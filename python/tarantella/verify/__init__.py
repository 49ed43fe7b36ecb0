"""`tarantella verify`: runs a script at several numbers of ranks and compares the fingerprints of the runs.

What lives here: the command, its options, and the comparison. What must not: the writing of fingerprints, which is
`tarantella.keras.reproducible`'s.
"""
