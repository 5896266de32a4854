"""For all tests."""

import signal

# In the background of a shell SIGINT comes ignored, and whatever the tests start would ignore their Ctrl-C too.
signal.signal(signal.SIGINT, signal.default_int_handler)
