"""For `agent-env probe`: policies that see what a model sees.

- oracle: one command that does what the prompt asks.
- hasty: the same commands with a mistake that is easily made.
"""

from programs import PROGRAMS

from agent_env.authoring.script import Moves, answer, call, scripted

TOTALS = """
import csv
sums = {}
for row in csv.DictReader(open("orders.csv")):
    paid = row["status"] == "paid" or not ONLY_PAID
    sums[row["region"]] = sums.get(row["region"], 0) + paid * int(row["units"]) * int(row["cents"])
with open("totals.txt", "w") as out:
    for region, total in sorted(sums.items(), key=lambda item: -item[1]):
        print(region, total, file=out)
"""
LOG = """
import json, re
from collections import Counter, defaultdict
rows = [re.match(r'(\\S+) \\[.*?\\] "GET (.*?)" (\\d+) (\\d+) (\\d+)ms', line).groups() for line in open("access.log")]
durations = defaultdict(list)
for _, path, _, _, millis in rows:
    durations[path].append(int(millis))
report = {
    "errors": sum(int(row[2]) >= LEAST_ERROR for row in rows),
    "busiest": Counter(row[0] for row in rows).most_common(1)[0][0],
    "slowest": max(durations, key=lambda path: sum(durations[path]) / len(durations[path])),
    "bytes": sum(int(row[3]) for row in rows if row[2] == "200"),
}
json.dump(report, open("report.json", "w"))
"""
TIDY = """
import glob, os
for path in glob.glob(PATTERN):
    year, month, _ = open(path).readline().split()[1].split("-")
    os.makedirs(f"{year}/{month}", exist_ok=True)
    os.rename(path, f"{year}/{month}/{os.path.basename(path)}")
"""
CONFIG = """
import re
asked = open("/tmp/asked").read()
port = re.search(r"\\[server\\] is (\\d+)", asked)[1]
level = re.search(r"\\[logging\\] is (\\w+)", asked)[1]
size = re.search(r"size = (\\d+)", asked)[1]
text = open("app.ini").read()
text = re.sub(r"(?s)\\[legacy\\].*?(?=\\[logging\\])", "", text)
text = re.sub(r"port = \\d+", f"port = {port}", text)
text = re.sub(r"level = \\w+", f"level = {level}", text) + f"\\n[cache]\\nsize = {size}\\n"
if not KEEP_COMMENTS:
    text = re.sub(r"(?m)^#.*\\n", "", text)
open("app.ini", "w").write(text)
"""
MERGE = """
import csv
people = {}
for file in ("a.csv", "b.csv"):
    for row in csv.DictReader(open(file)):
        email = row["email"].lower() if FOLD else row["email"]
        if email not in people or row["updated"] > people[email]["updated"]:
            people[email] = {**row, "email": email}
with open("merged.csv", "w") as out:
    print("email,name,phone", file=out)
    for email in sorted(people):
        print(email, people[email]["name"], people[email]["phone"], sep=",", file=out)
"""
COMMANDS = {
    "orders.csv": (TOTALS, "ONLY_PAID = True", "ONLY_PAID = False"),
    "access.log": (LOG, "LEAST_ERROR = 500", "LEAST_ERROR = 400"),
    "The files in inbox/": (TIDY, 'PATTERN = "inbox/*"', 'PATTERN = "inbox/*.txt"'),
    "app.ini": (CONFIG, "KEEP_COMMENTS = True", "KEEP_COMMENTS = False"),
    "a.csv and b.csv": (MERGE, "FOLD = True", "FOLD = False"),
}
"""How a prompt begins -> the program that does it, and what it is to be told: well, and with a mistake."""


def _play(prompt: str, *, well: bool) -> Moves:
    yield call("bash", command="cd job && ls -R && head -5 *.* 2>/dev/null; true")
    for beginning, (program, right, wrong) in COMMANDS.items():
        if prompt.startswith(beginning):
            code = f"cat > /tmp/asked <<'END'\n{prompt}\nEND\npython3 - <<'END'\n{right if well else wrong}{program}END"
            yield call("bash", command=f"cd job\n{code}")
    for program in PROGRAMS:
        if f"program `{program.name}` has" in prompt and well:
            yield call("bash", command=f"cat > job/{program.name} <<'END'\n{program.source}END")
    yield answer("Done.")


def oracle(prompt: str) -> Moves:
    return _play(prompt, well=True)


def hasty(prompt: str) -> Moves:
    return _play(prompt, well=False)


POLICIES = {"oracle": scripted(oracle), "hasty": scripted(hasty)}
SPLIT = "eval"
SCORES = {"oracle": 1.0, "hasty": 0.397, "no-op": 0.0}
