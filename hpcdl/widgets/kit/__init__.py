"""The implementation of pictures, one concept per file; begin with `explorable`, then `picture` and `canvas`."""
