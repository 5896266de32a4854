"""The words that helpdesk tickets are made of: what people write, and which team it is for."""

TROUBLES: dict[str, list[tuple[str, str]]] = {
    "billing": [
        ("Charged twice", "Our card was charged twice for the licences of this month."),
        ("Invoice without our order number", "The last invoice lacks our order number, so our bookkeeping returns it."),
        ("Which price is right?", "The quote and the bill differ for the same seats. Which price is right?"),
        ("Network plan renewal", "The renewal of the network plan came with a higher amount than we had agreed on."),
        ("Credit for last month", "We were promised a credit for last month, and it is not on the statement."),
    ],
    "access": [
        ("Locked out", "After three wrong passwords my account is locked."),
        ("No right to the shared folder", "I open the shared folder and am told that I have no right to read it."),
        ("Invoice portal", "The invoice portal does not take my password any more, though I changed nothing."),
        ("Sign-in code", "The sign-in code comes to a phone that I gave back in spring."),
        ("New colleague", "A colleague starts on Monday and has no login yet."),
    ],
    "network": [
        ("Connection drops", "The Wi-Fi drops every few minutes since this morning."),
        ("VPN", "The VPN connects, and then no internal page opens."),
        ("Slow uploads", "Uploads crawl at a tenth of what they used to, on every machine that I tried."),
        (
            "Printer offline?",
            "The new printer shows no fault, but it gets no address on our floor, nor does anything else.",
        ),
        ("Calls break up", "Calls break up as soon as more than two join, on the cable as on the Wi-Fi."),
    ],
    "hardware": [
        ("Screen", "One half of my screen stays black, with any cable."),
        ("Laptop does not start", "The laptop shows one orange light and does not start."),
        ("Keyboard", "After a coffee the keyboard writes what it likes."),
        (
            "Login screen frozen",
            "The touch pad is dead, so I cannot get past the login screen; with a mouse all is well.",
        ),
        ("Battery", "The battery is empty after ten minutes and its case is bent."),
    ],
}
"""Team -> (subject, first sentence). The subject alone may mislead."""

ALONE = ["It is only me.", "My colleagues are fine.", "I can work around it for now."]
MANY = [
    "Nobody here can work at the moment.",
    "The whole team is at a standstill.",
    "A dozen of us sit idle because of it.",
]
"""A ticket that says one of these is about several people who can't work."""

REQUESTS = {
    "self": "Please change my {field} in your directory to {value}.",
    "other": "Please change the {field} of {name} in your directory to {value}.",
}
REQUEST_SUBJECTS = ["A change of details", "Directory", "Please update", "New details"]

SYSTEM_PROMPT = """\
You work at the helpdesk of an IT provider. Tickets come from people at our customers; the directory knows the people, \
their managers, and the companies with their plans. Work with the tools, and end each turn with end_turn.

Teams:
- billing: invoices, prices, payments
- access: passwords, logins, rights
- network: connections of any kind
- hardware: devices that are broken
- records: requests to change a person's details in the directory

Priority: by the plan of the sender's company, gold is high, silver is normal, bronze is low. If several people can't \
work, it is one step higher: low becomes normal, normal becomes high, high becomes urgent. A sender whose address is \
not in the directory gets low.

Go by what the ticket says, not by its subject alone, and by the sender's address, not by the name."""

TRIAGE = "{count} tickets are new. Route each to its team, with its priority. Then end your turn."
CHANGES = """\
Some of the tickets ask for a change of a person's phone or desk. You may use update_person from now on. Make each \
change that the person themself or their manager, as the directory names them, asks for. Make no other change. Then \
end your turn."""
QUESTIONS = {
    "manager": "What is the email address of the manager of whoever sent {ticket}? End your turn with it alone.",
    "account": "Who is the account manager for the company of whoever sent {ticket}? End your turn with the name.",
    "gold": "How many of the tickets were sent by people of companies on the gold plan? End your turn with the number "
    "alone.",
}
