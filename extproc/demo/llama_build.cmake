# Read by CMake after each project() of llama.cpp, for a build in half the time: decision 0182.

# ggml computes the tokens. What is around it needs no -O3.
if(PROJECT_NAME STREQUAL "ggml")
  set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
else()
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
endif()

# Small files that read the same large headers are compiled together, but for those that cannot be.
if(PROJECT_NAME STREQUAL "llama.cpp" AND NOT CMAKE_VERSION VERSION_LESS 3.19)
  cmake_language(DEFER CALL set_target_properties
    llama-common llama-server-impl mtmd server-context PROPERTIES UNITY_BUILD ON)
  cmake_language(DEFER CALL set_source_files_properties
    ${CMAKE_SOURCE_DIR}/common/json.cpp TARGET_DIRECTORY llama-common
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  cmake_language(DEFER CALL set_source_files_properties
    ${CMAKE_SOURCE_DIR}/tools/mtmd/mtmd-helper.cpp
    ${CMAKE_SOURCE_DIR}/tools/mtmd/mtmd-helper-gen.cpp TARGET_DIRECTORY mtmd
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endif()
