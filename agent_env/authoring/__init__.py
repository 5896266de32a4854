"""For bundle authors: make a bundle (`new`), play it by hand (`play`), find out what is wrong with it (`probe`)."""
