"""The shape of the house: who may import whom, what reads no clock, what the front door lets in."""
