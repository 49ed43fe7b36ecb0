"""`tarantella verify`: a script at several numbers of ranks, and whether all of them trained to the same bits."""
