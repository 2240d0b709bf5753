# Writes the blocks of C++ in a page to files: the first to FOLDER/NAME.inc with the first of `names`,
# and so on. Compilers name lines as the page numbers them.
BEGIN { expected = split(names, name, " ") }
/^```/ && inside { inside = 0; next }
/^```cpp$/ {
  inside = 1
  if (++blocks <= expected) {
    file = folder "/" name[blocks] ".inc"
    printf "#line %d \"%s\"\n", FNR + 1, FILENAME > file
  }
  next
}
inside && blocks <= expected { print > file }
END {
  if (blocks == expected) exit 0
  printf "%s has %d blocks of C++ and tests/readme compiles %d (%s): change its CMakeLists.txt\n",
    FILENAME, blocks, expected, names > "/dev/stderr"
  exit 1
}
