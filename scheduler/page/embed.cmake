# cmake -DFROM=scheduler/page -DTO=page.c -P embed.cmake: the page in one piece, as bytes of a C file.
file(READ ${FROM}/page.html page)
file(READ ${FROM}/page.css css)
set(js "")
foreach(name model draw controls)
  file(READ ${FROM}/${name}.js part)
  string(APPEND js "${part}")
endforeach()
string(REPLACE "{{css}}" "${css}" page "${page}")
string(REPLACE "{{js}}" "${js}" page "${page}")
string(HEX "${page}" bytes)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${TO}
  "#include \"scheduler/page/page.h\"\n\nstatic const unsigned char bytes[] = {\n${bytes}0};\n\n"
  "const char *const page_text = (const char *)bytes;\nconst size_t page_text_bytes = sizeof(bytes) - 1;\n")
