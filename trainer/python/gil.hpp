#pragma once

#include <pybind11/pybind11.h>

namespace waggle::python {

/// The program ends: from now on no other thread gets back from without_gil. Python would end such
/// a thread (a daemon) where it asks for the GIL, inside frames of C++, which ends the process by
/// SIGABRT. Call it with the GIL.
void end_program();
/// Whether another thread has called end_program.
[[nodiscard]] bool program_ends();

/// While it exists, other threads of Python run. Made and destroyed by a thread with the GIL.
class without_gil {
public:
  without_gil() : state_(PyEval_SaveThread()) {}
  ~without_gil();
  without_gil(const without_gil&) = delete;
  without_gil& operator=(const without_gil&) = delete;

private:
  PyThreadState* state_;
};

/// While it exists, a thread of a peer has the GIL. Throws std::runtime_error once the program
/// ends.
class with_gil {
public:
  with_gil();
  ~with_gil() { PyGILState_Release(state_); }
  with_gil(const with_gil&) = delete;
  with_gil& operator=(const with_gil&) = delete;

private:
  PyGILState_STATE state_;
};

} // namespace waggle::python
