"""The embedded AWS: everything that exists only because we run on one machine.

Never imported by `functions/` or `stacks/`. `python -m local --help` lists the commands.
"""
