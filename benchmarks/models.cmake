# The models' gradient lists (models/*.json) as a source file, so that the program needs no data files.
# Sets TNT_BENCH_MODELS_SOURCE.
set(TNT_BENCH_MODELS resnet50 transformer_big bert_large)
set(TNT_BENCH_MODELS_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/models_data.cpp)

set(TNT_BENCH_MODEL_TEXTS "")
foreach(model IN LISTS TNT_BENCH_MODELS)
  set(file ${CMAKE_CURRENT_LIST_DIR}/models/${model}.json)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(APPEND TNT_BENCH_MODEL_TEXTS "    {\"${model}\", R\"json(${text})json\"},\n")
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/models.cpp.in ${TNT_BENCH_MODELS_SOURCE} @ONLY)
