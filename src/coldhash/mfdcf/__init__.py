"""MFDCF: multi-feature discrete collaborative filtering."""
