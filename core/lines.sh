#!/usr/bin/env bash
# Counts core's lines of code: no tests, no comments, no blank lines. By module, then all.
set -euo pipefail
cd "$(dirname "$0")/src"
find . -name '*.rs' ! -path '*tests*' -print0 | sort -z | xargs -0 awk '
    FNR == 1 { tests = 0; split(FILENAME, part, /[.\/]+/); module = part[2] }
    # A module of tests: in a file of its own, or from here to the brace in column 0.
    /^#\[cfg\((all\()?test/ { tests = 1 }
    !tests && !/^ *(\/\/|$)/ { lines[module]++; all++ }
    tests && (/^}/ || /^mod [a-z_]+;$/) { tests = 0 }
    END {
        for (module in lines) printf "%5d %s\n", lines[module], module | "sort -rn"
        close("sort -rn")
        printf "%5d all\n", all
    }'
