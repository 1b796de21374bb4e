# The files of the data plane over NCCL, for whoever compiles them.
set(COLLECTIVES_CUDA_SOURCES
  comm_nccl.c comm_nccl_connect.c comm_nccl_flight.c comm_nccl_group.c comm_nccl_lane.c comm_nccl_wait.c)
list(TRANSFORM COLLECTIVES_CUDA_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
