# Run by `cmake --install`: writes the headers of `source` and `binary` to ${binary}/headers as another
# project sees them. They include each other as <braid/graph/shape.h>, so that a project with a graph/
# of its own never meets Braid's.
file(REMOVE_RECURSE ${binary}/headers)
foreach(root IN ITEMS ${source} ${binary})
  foreach(folder actor api comm compiler graph runtime)
    file(GLOB_RECURSE headers RELATIVE ${root} ${root}/${folder}/*.h)
    list(FILTER headers EXCLUDE REGEX "^api/tool/")
    foreach(header IN LISTS headers)
      file(READ ${root}/${header} text)
      string(REGEX REPLACE "#include \"((actor|api|comm|compiler|graph|runtime)/[^\"]+)\""
        "#include <braid/\\1>" text "${text}")
      string(REGEX REPLACE "^api/include/braid/" "" target ${header})
      file(WRITE ${binary}/headers/${target} "${text}")
    endforeach()
  endforeach()
endforeach()
