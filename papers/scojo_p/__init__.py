"""SCOJO-P: how many ranks moldable jobs get on one parallel machine (L. Barsanti, A. C. Sodan 2006)."""
