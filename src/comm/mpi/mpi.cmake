# The MPI libraries of this machine. Libraries whose ABI is the same are one for us: Open MPI 3 to 5 (libmpi.so.40), and MPICH 3.1
# and newer with Intel MPI and MVAPICH (libmpi.so.12). For each ABI found there are
#
#   tnt_mpi_ABI         a target with its headers and its library, for programs
#   TNT_MPIEXEC_ABI     its mpiexec; empty if there is none beside its compiler
#
# and TNT_MPI_ABIS lists them.
set(TNT_MPICC mpicc mpicc.openmpi mpicc.mpich CACHE STRING
    "MPI compilers: names or paths. The first of each ABI is used; others are ignored. Empty: no MPI")

function(tnt_mpi_abi abi include_folders)
  set(${abi} "" PARENT_SCOPE)
  foreach(folder IN LISTS include_folders)
    if(EXISTS ${folder}/mpi.h)
      file(STRINGS ${folder}/mpi.h defined REGEX "^#[ \t]*define[ \t]+(OMPI_MAJOR_VERSION|MPICH_VERSION|I_MPI_VERSION)[ \t]")
      if(defined MATCHES OMPI_MAJOR_VERSION)
        set(${abi} openmpi PARENT_SCOPE)
      elseif(defined)
        set(${abi} mpich PARENT_SCOPE)
      endif()
      return()
    endif()
  endforeach()
endfunction()

set(TNT_MPI_ABIS "")
foreach(name IN LISTS TNT_MPICC)
  find_program(compiler NAMES ${name} HINTS ENV MPI_HOME PATH_SUFFIXES bin NO_CACHE)
  if(compiler)
    execute_process(COMMAND ${compiler} -show OUTPUT_VARIABLE command ERROR_QUIET RESULT_VARIABLE code)
    separate_arguments(command UNIX_COMMAND "${command}")
    list(TRANSFORM command REPLACE "^-isystem" "-I")
    set(include_folders ${command})
    list(FILTER include_folders INCLUDE REGEX "^-I.")
    list(TRANSFORM include_folders REPLACE "^-I" "")
    list(APPEND include_folders ${CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES})
    set(libraries ${command})
    list(FILTER libraries INCLUDE REGEX "^-(L|l|Wl,|pthread)")
    tnt_mpi_abi(abi "${include_folders}")
    if(code EQUAL 0 AND abi AND NOT abi IN_LIST TNT_MPI_ABIS)
      list(APPEND TNT_MPI_ABIS ${abi})
      list(REMOVE_ITEM include_folders ${CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES})
      add_library(tnt_mpi_${abi} INTERFACE IMPORTED)
      set_target_properties(tnt_mpi_${abi} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${include_folders}"
        INTERFACE_LINK_LIBRARIES "${libraries}" INTERFACE_COMPILE_DEFINITIONS "OMPI_SKIP_MPICXX;MPICH_SKIP_MPICXX")
      cmake_path(GET compiler PARENT_PATH folder)
      cmake_path(GET compiler FILENAME program)
      string(REPLACE mpicc mpiexec program ${program})
      set(TNT_MPIEXEC_${abi} "")
      if(EXISTS ${folder}/${program})
        set(TNT_MPIEXEC_${abi} ${folder}/${program})
      endif()
      message(STATUS "MPI with the ABI of ${abi}: ${compiler}")
    endif()
  endif()
  unset(compiler)
endforeach()
if(NOT TNT_MPI_ABIS)
  message(STATUS "no MPI found: ranks on several nodes can be connected by TCP only")
endif()

# A plug-in for each ABI, called NAME_ABI. None links its MPI library: whoever opens the plug-in has loaded that of the process,
# whose file name differs (Debian's MPICH is libmpich.so.12).
function(tnt_mpi_plugins name)
  foreach(abi IN LISTS TNT_MPI_ABIS)
    add_library(${name}_${abi} MODULE ${ARGN})
    target_include_directories(${name}_${abi} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_include_directories(${name}_${abi} SYSTEM PRIVATE
      $<TARGET_PROPERTY:tnt_mpi_${abi},INTERFACE_INCLUDE_DIRECTORIES>)
    target_compile_definitions(${name}_${abi} PRIVATE
      $<TARGET_PROPERTY:tnt_mpi_${abi},INTERFACE_COMPILE_DEFINITIONS>)
    set_target_properties(${name}_${abi} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endforeach()
endfunction()
