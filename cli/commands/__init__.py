"""One module for each verb of the command line; see `tidelog.cli.main`."""
