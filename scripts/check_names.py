#!/usr/bin/env python3
"""Refuses names and doc comments that a newcomer cannot guess or search for.

The rules stand in CONTRIBUTING.md, "Names and comments". Checks the Rust sources below
`crates/*/src`, tests aside:

- a visible type, a module or a visible function whose whole name is a bare adverb,
  preposition, pronoun, participle or verb (`Kept`, `elsewhere.rs`, `fn apart`);
- a visible type whose name three or more crates define, common words such as `Reader` aside;
- a doc comment that opens with a noun clause ("What is …", "Whether …") instead of a noun or
  a verb.

`scripts/names_allowed.toml` lists the exceptions with their reasons. An exception that nothing
needs any more is a fault too.

    python3 scripts/check_names.py            checks the tree; status 1 where it has faults
    python3 scripts/check_names.py --counts   prints the findings by kind, with exceptions
"""

import collections
import pathlib
import re
import sys

import tomllib

# Words that say nothing as a whole name. By word class, so that a gap is easy to see.
ADVERBS = """
    about again ahead alike all alone also among anew any apart around away back backwards
    before behind below beside besides between beyond both down each elsewhere else ever
    every few first forth further here how inside instead into itself last later least less
    like many meanwhile more most much near never next none nor not now off often once one
    only onto or other others otherwise out outside over own per rest same several since so
    some soon still such than that then there therefore these this those through together
    too towards twice under until up upon what when whence where whether which while who
    whole whose why with within without yet
""".split()
PREPOSITIONS = (
    "above after as at by for from in is of on past till to toward underneath unless".split()
)
PARTICIPLES = """
    added answered applied asked begun bound built called chosen closed coded come counted
    cut dealt done drawn driven dropped ended estimated evicted explained fed fetched filled
    finished fit fixed found gathered given gone guarded guessed handed heard held hidden
    joined judged kept known laid learned left lent listed looked lost made marked measured
    merged met missed mixed moved named noted noticed opened ordered owned parted passed
    placed planned posted promoted put raised ranged reached read recovered reduced refused
    registered rejected repeated replaced rests returned run said sampled scattered seen
    sent settled shared shown spilled spoken spread staged standing started stood stopped
    stored summed taken tested thrown told took tracked travelling turned typed understood
    united used waiting wanted watched weighed wound written wrong
""".split()
VERBS = """
    answer ask become begin bring come deal give go hold keep know lay learn leave lend let
    look lose make meet need note own raise refuse rise say see seek seem send settle show
    speak spend stand take tell think throw turn wait walk want weigh
""".split()
BARE_WORDS = {*ADVERBS, *PREPOSITIONS, *PARTICIPLES, *VERBS}

# Bare words that are names in Rust, in SQL or in the field: `Iterator::next`, `Read::read`.
FUNCTION_NAMES_OF_THE_FIELD = set(
    """
    all any begin by closed finished first get in index is last next not on one out put read
    run seek send sort started take to up wait
    """.split()
)
MODULE_NAMES_OF_THE_FIELD = {"get", "merge", "put", "read", "run", "scan", "sort"}

# Types that many crates may define: their crate or module qualifies them.
COMMON_TYPE_NAMES = set(
    """
    Args Batch Block Builder Client Codec Column Columns Config Cursor Decoder Encoder Entry
    Error Field Format Frame Group Groups Header Iter Key Keys Kind Limits Node Option
    Options Range Reader Record Request Response Result Row Rows Schema Segment Server Sink
    Source Span Spec State Stats Table Token Value Values Window Writer
    """.split()
)

NOUN_CLAUSE = re.compile(r"(What|Which|Whether|How|Where|Who|Of|So)\b")
TYPE = re.compile(r"\s*pub(?:\([a-z ]+\))? (?:unsafe )?(?:struct|enum|trait|union|type) ([A-Z]\w*)")
FUNCTION = re.compile(r"\s*pub(?:\([a-z ]+\))? (?:const |async |unsafe )*fn ([a-z]\w*)")
DOC = re.compile(r"\s*//[/!] ?(.*)")

Finding = collections.namedtuple("Finding", "kind name place message")


def check_file(path, crate, text, types):
    """Yield the findings of one file, and add its visible types to `types`."""
    stem = path.stem if path.stem not in ("lib", "main", "mod") else None
    if stem in BARE_WORDS - MODULE_NAMES_OF_THE_FIELD:
        yield Finding("module", stem, str(path), "a module is named by its mechanism or content")
    opening, tests_begin = True, False
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{path}:{number}"
        if doc := DOC.match(line):
            if opening and NOUN_CLAUSE.match(doc[1]):
                message = "a doc comment opens with a noun (types, values) or a verb (functions)"
                yield Finding("doc", doc[1][:60], place, message)
            opening = False
            continue
        opening = True
        # Test modules stand at the end of a file; their functions are not visible.
        tests_begin = tests_begin or re.match(r"#\[cfg\(test\)\]", line) is not None
        if tests_begin:
            continue
        if (found := TYPE.match(line)) and found[1] != "Readme":
            types[found[1]].setdefault(crate, place)
            if found[1].lower() in BARE_WORDS:
                yield Finding("type", found[1], place, "a type is a noun phrase")
        if (found := FUNCTION.match(line)) and found[1] in BARE_WORDS - FUNCTION_NAMES_OF_THE_FIELD:
            message = "a function is a verb phrase, an accessor the noun it returns"
            yield Finding("function", found[1], place, message)


def check(sources):
    """Return the findings of `sources`, pairs of a path below `crates` and a text."""
    types, findings = collections.defaultdict(dict), []
    for path, text in sources:
        if "tests" not in path.parts and path.stem != "tests":
            findings.extend(check_file(path, path.parts[1], text, types))
    for name, places in sorted(types.items()):
        if len(places) >= 3 and name not in COMMON_TYPE_NAMES:
            where = ", ".join(places.values())
            message = "one name has one meaning: qualify it by its domain"
            findings.append(Finding("shared type", name, where, message))
    return findings


def main(arguments):
    """Check the tree and print its faults; return the exit status."""
    root = pathlib.Path(__file__).resolve().parent.parent
    files = sorted(root.glob("crates/*/src/**/*.rs"))
    findings = check((path.relative_to(root), path.read_text()) for path in files)
    if arguments == ["--counts"]:
        counts = collections.Counter(finding.kind for finding in findings)
        for kind in ("shared type", "type", "module", "function", "doc"):
            print(f"{counts[kind]:5} {kind}")
        return 0
    allowed = tomllib.loads((root / "scripts" / "names_allowed.toml").read_text())
    exceptions = {(entry["kind"], entry["name"]) for entry in allowed.get("name", [])}
    needed, faults = set(), 0
    for finding in findings:
        if (finding.kind, finding.name) in exceptions:
            needed.add((finding.kind, finding.name))
            continue
        faults += 1
        print(f"{finding.place}: {finding.kind} `{finding.name}`: {finding.message}")
    for kind, name in sorted(exceptions - needed):
        faults += 1
        print(f"scripts/names_allowed.toml: nothing needs the exception for {kind} `{name}`")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
