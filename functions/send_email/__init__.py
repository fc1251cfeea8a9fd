"""Sends one e-mail."""
