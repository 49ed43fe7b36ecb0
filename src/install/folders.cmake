# The folders of an installation, relative to the prefix. In a wheel the prefix is the Python package's folder, which C programs
# can be built against as well; it has no symbolic links.
include(GNUInstallDirs)

if(TNT_BUILD_PYTHON)
  set(TNT_LIBRARY_FOLDER tarantella)
  set(TNT_PROGRAM_FOLDER tarantella/bin)
  set(TNT_PEER_FOLDER tarantella/bin)
  set(TNT_HEADER_FOLDER tarantella/include)
  set(TNT_DEVELOPER_FOLDER tarantella/lib)
else()
  set(TNT_LIBRARY_FOLDER ${CMAKE_INSTALL_LIBDIR})
  set(TNT_PROGRAM_FOLDER ${CMAKE_INSTALL_BINDIR})
  set(TNT_PEER_FOLDER ${CMAKE_INSTALL_LIBDIR}/tarantella)
  set(TNT_HEADER_FOLDER ${CMAKE_INSTALL_INCLUDEDIR})
  set(TNT_DEVELOPER_FOLDER ${CMAKE_INSTALL_LIBDIR})
endif()

# The relative path from one folder of an installation to another, for files that must work after the prefix was moved.
function(tnt_way variable from to)
  cmake_path(ABSOLUTE_PATH from BASE_DIRECTORY /prefix)
  cmake_path(ABSOLUTE_PATH to BASE_DIRECTORY /prefix)
  cmake_path(RELATIVE_PATH to BASE_DIRECTORY ${from})
  set(${variable} ${to} PARENT_SCOPE)
endfunction()
tnt_way(TNT_PROGRAM_TO_LIBRARY ${TNT_PROGRAM_FOLDER} ${TNT_LIBRARY_FOLDER})
tnt_way(TNT_PROGRAM_TO_PEERS ${TNT_PROGRAM_FOLDER} ${TNT_PEER_FOLDER})
