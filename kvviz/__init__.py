"""kvviz: see what a key-value cache does to a real language model.

Rooms and the one direction of imports between them are described in the README.
Importing any module here builds nothing, touches no accelerator and loads no model.
"""

__version__ = "0.1.0"
