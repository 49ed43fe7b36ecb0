"""The flight records of ranks: their last calls, as the library writes them (src/comm/flight_recorder.hpp).

`record` reads one, `waits` says who waits for whom, `words` describes calls and ranks.
"""
