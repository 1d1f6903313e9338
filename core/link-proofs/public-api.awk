# Prints `Type::function`, or `*::function` for one outside an impl, for every public function in the
# given sources. Reads what rustfmt writes: an impl begins and ends in column 0.
FNR == 1 || /^}/ { owner = "*" }
/^impl/ && !/ for / {
    owner = $0
    sub(/^impl(<[^<>]*>)? +/, "", owner)
    sub(/[^A-Za-z0-9_].*/, "", owner)
}
/^ *pub (const )?(unsafe )?fn / {
    name = $0
    sub(/.*fn /, "", name)
    sub(/[^A-Za-z0-9_].*/, "", name)
    print owner "::" name
}
