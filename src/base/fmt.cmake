# tnt_fmt: the formatting library, compiled once into a static library with hidden symbols. fmt::fmt-header-only would compile
# fmt's functions in every file that uses them, and libfmt.so may not be installed where our package runs. A version of fmt that
# fmt.cpp does not know is used header-only.
find_package(fmt REQUIRED)
get_target_property(fmt_headers fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)

if(NOT DEFINED TNT_FMT_COMPILED_ONCE)
  try_compile(TNT_FMT_COMPILED_ONCE ${CMAKE_CURRENT_BINARY_DIR}/fmt_check
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp ${CMAKE_CURRENT_LIST_DIR}/fmt_check.cpp
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${fmt_headers}"
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
endif()

if(TNT_FMT_COMPILED_ONCE)
  add_library(tnt_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
  target_include_directories(tnt_fmt SYSTEM PUBLIC ${fmt_headers})
  target_link_libraries(tnt_fmt PRIVATE tnt_options)
else()
  message(STATUS "fmt ${fmt_VERSION} is compiled in every file that uses it: src/base/fmt.cpp does not fit it")
  add_library(tnt_fmt INTERFACE)
  target_link_libraries(tnt_fmt INTERFACE fmt::fmt-header-only)
endif()
