"""Paddock: a self-hosted computer for AI agents."""

__version__ = "0.1.0"
