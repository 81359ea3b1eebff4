#include "trainer/python/gil.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>

#include <unistd.h>

namespace waggle::python {

namespace {

std::atomic<std::thread::id> ends_in; // no thread: the program goes on

} // namespace

void end_program() {
  ends_in = std::this_thread::get_id();
}

bool program_ends() {
  auto thread = ends_in.load();
  return thread != std::thread::id{} && thread != std::this_thread::get_id();
}

without_gil::~without_gil() {
  while (program_ends())
    ::pause();
  PyEval_RestoreThread(state_);
}

with_gil::with_gil() {
  if (ends_in.load() != std::thread::id{})
    throw std::runtime_error{"the program ends"};
  state_ = PyGILState_Ensure();
}

} // namespace waggle::python
