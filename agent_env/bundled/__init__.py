"""Where the bundles that ship with this package lie once installed; in a checkout they are in `bundles/`."""
