"""Small programs with bugs: what a `fix` task hands to the agent, and what is right.

Each reads lines from standard input. The agent gets the source with one of the bugs, and the description.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    name: str
    description: str
    source: str
    bugs: tuple[tuple[str, str], ...]
    """(right, wrong): each is in the source once."""
    inputs: Callable[[random.Random], list[str]]
    """Inputs of many kinds, of which some show each bug and some don't."""


def _numbers(draw: random.Random) -> list[str]:
    counts = (1, 2, 3, 4, 5, 6, 7, 8)
    return ["".join(f"{draw.randint(-50, 50)}\n" for _ in range(count)) for count in counts]


def _intervals(draw: random.Random) -> list[str]:
    found = ["3 5\n1 2\n", "1 4\n4 6\n", "1 9\n2 3\n", "5 6\n", "7 9\n1 3\n2 4\n"]
    for _ in range(5):
        starts = [draw.randint(0, 30) for _ in range(draw.randint(2, 6))]
        found.append("".join(f"{start} {start + draw.randint(1, 6)}\n" for start in starts))
    return found


def _words(draw: random.Random) -> list[str]:
    words = ["the", "a", "Fox", "fox", "dog,", "Dog.", "ran", "ran!", "far", "Far", "away", "The", "end"]
    return [" ".join(draw.choice(words) for _ in range(draw.randint(1, 12))) + "\n" for _ in range(8)]


def _runs(draw: random.Random) -> list[str]:
    found = ["aaab\n", "a\n", "abc\n", "aabbbbbbbbbbbb\n"]
    found += ["".join(letter * draw.randint(1, 12) for letter in draw.sample("abcdxyz", 4)) + "\n" for _ in range(5)]
    return found


def _times(draw: random.Random) -> list[str]:
    found = ["00:10 00:20\n", "23:50 00:10\n", "09:05 09:05\n", "08:59 10:01\n"]
    for _ in range(5):
        times = [f"{draw.randint(0, 23):02d}:{draw.randint(0, 59):02d}" for _ in range(2)]
        found.append(" ".join(times) + "\n")
    return found


PROGRAMS = (
    Program(
        "median",
        "It reads whole numbers, one a line, and prints their median: the middle one of the sorted numbers, or for an "
        "even count the mean of the two middle ones, always with one decimal place.",
        """\
import sys

numbers = sorted(int(line) for line in sys.stdin if line.strip())
half = len(numbers) // 2
if len(numbers) % 2:
    median = numbers[half]
else:
    median = (numbers[half - 1] + numbers[half]) / 2
print(f"{median:.1f}")
""",
        (
            ("sorted(int(line) for line", "sorted(line.strip() for line"),
            ("(numbers[half - 1] + numbers[half]) / 2", "numbers[half]"),
            ("(numbers[half - 1] + numbers[half]) / 2", "(numbers[half - 1] + numbers[half]) // 2"),
        ),
        _numbers,
    ),
    Program(
        "intervals",
        "It reads intervals, one a line as `START END` (whole numbers), and prints them merged, in order: intervals "
        "that overlap, or of which one starts where the other ends, become one.",
        """\
import sys

intervals = sorted(tuple(map(int, line.split())) for line in sys.stdin if line.strip())
merged = []
for start, end in intervals:
    if merged and start <= merged[-1][1]:
        merged[-1][1] = max(merged[-1][1], end)
    else:
        merged.append([start, end])
for start, end in merged:
    print(start, end)
""",
        (
            ("start <= merged[-1][1]", "start < merged[-1][1]"),
            ("max(merged[-1][1], end)", "end"),
            (
                "sorted(tuple(map(int, line.split())) for line in sys.stdin if line.strip())",
                "[tuple(map(int, line.split())) for line in sys.stdin if line.strip()]",
            ),
        ),
        _intervals,
    ),
    Program(
        "words",
        "It reads text and prints each word with how often it occurs, as `WORD COUNT`: words in lower case and without "
        "the punctuation around them, the most frequent first, equally frequent ones in alphabetical order.",
        """\
import string
import sys
from collections import Counter

words = (word.strip(string.punctuation).lower() for word in sys.stdin.read().split())
counts = Counter(word for word in words if word)
for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
    print(word, count)
""",
        (
            (".lower()", ""),
            ("word.strip(string.punctuation)", "word"),
            ("(-item[1], item[0])", "-item[1]"),
        ),
        _words,
    ),
    Program(
        "runs",
        "It reads one line of letters and prints it with each run of one letter written as the letter and the run's "
        "length; a run of one is the letter alone: `aaab` becomes `a3b`.",
        """\
import sys

text = sys.stdin.readline().strip()
out = []
start = 0
for place in range(1, len(text) + 1):
    if place == len(text) or text[place] != text[start]:
        length = place - start
        out.append(text[start] + (str(length) if length > 1 else ""))
        start = place
print("".join(out))
""",
        (
            ("range(1, len(text) + 1)", "range(1, len(text))"),
            ("str(length) if length > 1", "str(length % 10) if length > 1"),
            ('if length > 1 else ""', 'if length > 2 else ""'),
        ),
        _runs,
    ),
    Program(
        "minutes",
        "It reads one line with two times of day, as `HH:MM HH:MM`, and prints how many minutes it is from the first "
        "to the second: from 0 to 1439, the second being on the next day if it is earlier than the first.",
        """\
import sys

first, second = sys.stdin.readline().split()


def minutes(time):
    hours, rest = time.split(":")
    return int(hours) * 60 + int(rest)


print((minutes(second) - minutes(first)) % (24 * 60))
""",
        (
            (" % (24 * 60)", ""),
            ("int(hours) * 60", "int(hours) * 100"),
            ("(minutes(second) - minutes(first)) % (24 * 60)", "abs(minutes(second) - minutes(first))"),
        ),
        _times,
    ),
)
