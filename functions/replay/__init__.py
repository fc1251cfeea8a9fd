"""The operator's functions: lists, replays and purges the dead letters of any job."""
