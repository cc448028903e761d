# LibTorch comes from the Python package torch (its wheels hold headers and libraries). The engine
# links the CPU half only, so that a run without a card neither loads nor needs any CUDA library it
# can do without; the CUDA half is linked by a module of its own (kernels/cuda), loaded at run time.
# The package's own TorchConfig.cmake insists on nvcc, which most hosts lack, hence plain libraries.

set(HEADRACE_HAS_TORCH OFF)
if(NOT HEADRACE_TORCH STREQUAL "OFF")
  set(torch_folder ${HEADRACE_TORCH})
  if(torch_folder STREQUAL "AUTO")
    foreach(python "$ENV{HEADRACE_PYTHON}" "$ENV{HOME}/.cache/headrace/venv/bin/python" python3)
      if(python STREQUAL "")
        continue()
      endif()
      execute_process(
        COMMAND ${python} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
        OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(found)
        set(torch_folder ${found})
        break()
      endif()
    endforeach()
  endif()
  if(NOT EXISTS ${torch_folder}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "The Python package torch was not found (looked at HEADRACE_TORCH=${HEADRACE_TORCH}). "
      "Run scripts/setup, or pass -DHEADRACE_TORCH=<folder of the package>, or =OFF for the parts without it.")
  endif()
  # The OpenMP runtime that torch itself loads; a second one would bring a second set of threads.
  file(GLOB torch_openmp ${torch_folder}/lib/libgomp*.so* ${torch_folder}/../torch.libs/libgomp*.so*)
  if(NOT torch_openmp)
    message(FATAL_ERROR "No libgomp in ${torch_folder}/lib: the OpenMP runtime of this torch was not found.")
  endif()
  list(GET torch_openmp 0 torch_openmp)
  add_library(headrace_libtorch INTERFACE)
  add_library(headrace::libtorch ALIAS headrace_libtorch)
  target_include_directories(headrace_libtorch SYSTEM INTERFACE
    ${torch_folder}/include ${torch_folder}/include/torch/csrc/api/include)
  target_link_libraries(headrace_libtorch INTERFACE
    -Wl,--push-state,--no-as-needed ${torch_folder}/lib/libtorch_cpu.so ${torch_folder}/lib/libc10.so -Wl,--pop-state
    ${torch_openmp})
  get_filename_component(torch_openmp_folder ${torch_openmp} DIRECTORY)
  target_link_options(headrace_libtorch INTERFACE
    -Wl,-rpath,${torch_folder}/lib -Wl,-rpath,${torch_openmp_folder})
  set(HEADRACE_HAS_TORCH ON)
  message(STATUS "LibTorch: ${torch_folder}")
endif()

set(HEADRACE_HAS_CUDA OFF)
if(HEADRACE_HAS_TORCH AND NOT HEADRACE_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  # The toolkit's nvcc may be there and unable to work with this compiler.
  if(CUDAToolkit_FOUND)
    if(NOT DEFINED ENV{CUDACXX})
      set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    include(CheckLanguage)
    check_language(CUDA)
  endif()
  if(CUDAToolkit_FOUND AND CMAKE_CUDA_COMPILER AND EXISTS ${torch_folder}/lib/libtorch_cuda.so)
    set(HEADRACE_HAS_CUDA ON)
    # Code for every kind of card from 7.5 on, and PTX for those to come.
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES all-major)
    endif()
    enable_language(CUDA)
    add_library(headrace_libtorch_cuda INTERFACE)
    add_library(headrace::libtorch_cuda ALIAS headrace_libtorch_cuda)
    target_link_libraries(headrace_libtorch_cuda INTERFACE headrace::libtorch CUDA::cudart
      -Wl,--push-state,--no-as-needed ${torch_folder}/lib/libtorch_cuda.so ${torch_folder}/lib/libc10_cuda.so -Wl,--pop-state)
    target_link_options(headrace_libtorch_cuda INTERFACE -Wl,--allow-shlib-undefined)
  elseif(HEADRACE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HEADRACE_CUDA=ON, but no CUDA toolkit (a nvcc that works) was found, or torch has no CUDA half.")
  endif()
endif()
message(STATUS "CUDA half: ${HEADRACE_HAS_CUDA}")
