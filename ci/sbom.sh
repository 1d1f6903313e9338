#!/usr/bin/env bash
# Bill of materials of the firmware for a platform, CycloneDX 1.5, on stdout: ci/sbom.sh igx [TARGET]
# Exactly what is linked in: the features of this one program are resolved (cargo-cyclonedx resolves
# the whole workspace at once, and lists the command line's packages too), with the checksums of
# Cargo.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
platform=$1 target=${2:-x86_64-unknown-linux-gnu}

cargo tree -q -p tensorwire-firmware --no-default-features --features "$platform" \
    --target "$target" -e normal,no-proc-macro --prefix none --format '{p}|{l}' | sort -u |
    awk -v platform="$platform" -v target="$target" '
        # Of the lock file: name and version, then checksum.
        FNR == NR {
            if ($1 == "name") { gsub(/"/, "", $3); name = $3 }
            if ($1 == "version") { gsub(/"/, "", $3); version = $3 }
            if ($1 == "checksum") { gsub(/"/, "", $3); sum[name " " version] = $3 }
            next
        }
        {
            split($0, part, "|")
            split(part[1], word, " ")
            name = word[1]; version = substr(word[2], 2)
            if (name == "" || seen[name " " version]++) next
            if (name == "tensorwire-firmware") { own = version; next }
            ours = index(name, "tensorwire") == 1
            json = "    {\"type\": \"library\", \"name\": \"" name "\", \"version\": \"" version "\""
            if (!ours) json = json ", \"purl\": \"pkg:cargo/" name "@" version "\""
            if (part[2] != "") json = json ", \"licenses\": [{\"expression\": \"" part[2] "\"}]"
            if (!ours) {
                if (sum[name " " version] == "") { missing = missing " " name; next }
                json = json ", \"hashes\": [{\"alg\": \"SHA-256\", \"content\": \"" \
                    sum[name " " version] "\"}]"
            }
            list = list (list == "" ? "" : ",\n") json "}"
        }
        END {
            if (missing != "" || own == "") {
                print "no checksum in Cargo.lock:" missing > "/dev/stderr"
                exit 1
            }
            print "{\n  \"bomFormat\": \"CycloneDX\", \"specVersion\": \"1.5\", \"version\": 1,"
            print "  \"metadata\": {\"component\": {\"type\": \"firmware\", \"name\":" \
                " \"tensorwire-firmware\", \"version\": \"" own "\", \"properties\": [{\"name\":" \
                " \"platform\", \"value\": \"" platform " " target "\"}]}},"
            print "  \"components\": [\n" list "\n  ]\n}"
        }' Cargo.lock -
