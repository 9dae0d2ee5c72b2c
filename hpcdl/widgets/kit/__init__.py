"""How a picture works, one concept a file; begin with `explorable`, then `picture` and `canvas`."""
