"""The numbers of SPECIFICATION.md, measured: `python -m bench [create exec burst idle output store]`."""
