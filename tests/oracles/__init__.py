"""Independent answers: what the quantizers and the cache must give, worked out without either.

Nothing here imports the quant, attention or cache room.
"""
